"""A model from Python that does not take its samples is refused with its file, the data's and the shapes, before anything is trained."""
import pytest

torch = pytest.importorskip("torch")
save_file = pytest.importorskip("safetensors.torch").save_file

CONFIG = """
[run]
max_steps = 2
output_dir = "{folder}/runs"
[batch]
global_batch_size = 8
[data]
kind = "safetensors"
path = "{folder}/data.safetensors"
[model]
kind = "torchscript"
path = "{folder}/model.pt"
"""


def write(folder, model, samples):
    torch.jit.script(model).save(str(folder / "model.pt"))
    save_file({"x": samples, "y": torch.randint(0, 3, (len(samples),))}, str(folder / "data.safetensors"))
    (folder / "run.toml").write_text(CONFIG.format(folder=folder))
    return folder / "run.toml"


@pytest.mark.parametrize(("model", "samples", "given", "words"), [
    (torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.Linear(8, 3)), torch.randn(40, 10), '"x" float [2, 10]', "mat1 and mat2 shapes"),
    (torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 3)), torch.randn(40, 1, 8, 8), '"x" float [2, 1, 8, 8]', "to have 3 channels"),
])
@pytest.mark.parametrize("ranks", (1, 2))
def test_samples_that_do_not_fit_are_named(onebatch, tmp_path, model, samples, given, words, ranks):
    said = onebatch.run(ranks, "train", write(tmp_path, model, samples), code=2)
    assert f"{tmp_path}/model.pt does not take the samples of {tmp_path}/data.safetensors: given data.inputs {given}" in said
    assert words in said
    assert "Traceback of TorchScript" not in said and 'File "code/' not in said
    assert not list(tmp_path.glob("runs/*"))


def test_numbers_outside_of_an_embeddings_table_are_said_to_be(onebatch, tmp_path):
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Flatten(), torch.nn.Linear(24, 3))
    said = onebatch.run(1, "train", write(tmp_path, model, torch.full((40, 6), 10)), code=2)
    assert 'outside of an embedding\'s table (of these samples data.inputs "x" is 10 to 10): make its num_embeddings larger' in said
    assert "warning" not in said


def test_floats_in_the_place_of_whole_numbers_are_named(onebatch, tmp_path):
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Flatten(), torch.nn.Linear(24, 3))
    said = onebatch.run(1, "train", write(tmp_path, model, torch.ones(40, 6)), code=2)
    assert 'save data.inputs "x" so, as x.long()' in said


def test_samples_that_fit_are_trained_on(onebatch, tmp_path):
    onebatch.run(1, "train", write(tmp_path, torch.nn.Sequential(torch.nn.Linear(10, 3)), torch.randn(40, 10)), "--quiet")
