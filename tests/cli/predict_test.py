"""`onebatch predict`: what a trained model returns, in the order of the samples, the same bits on any ranks; and `eval` of the same."""
import random

import numpy as np
import pytest

from program import SGD_IN_FLOAT64, read_json, read_safetensors, settings, write_safetensors

ROWS, WIDTH, CLASSES = 700, 5, 3  # three blocks
CONFIG = """
[run]
max_steps = 3
output_dir = "{folder}/runs"
name = "run"
[batch]
global_batch_size = 64
[data]
kind = "safetensors"
path = "{folder}/data.safetensors"
[data.validation]
path = "{folder}/validation.safetensors"
[model]
kind = "mlp"
hidden = [8]
num_classes = 3
[probe]
steps_per_trial = 1
""" + SGD_IN_FLOAT64


def inputs_of(seed, rows=ROWS):
    draw = random.Random(seed)
    return [[draw.gauss(0.0, 1.0) for _ in range(WIDTH)] for _ in range(rows)]


def write_data(path, inputs, labels=True):
    columns = {"x": ("F64", [len(inputs), WIDTH], [value for row in inputs for value in row])}
    if labels:
        columns["y"] = ("I64", [len(inputs)], [max(range(CLASSES), key=lambda c: row[c]) for row in inputs])
    write_safetensors(path, **columns)


def validation_of(folder):
    return f'[data.validation]\npath = "{folder}/validation.safetensors"\n'


@pytest.fixture
def trained(onebatch, tmp_path):
    """A configuration, and its run in tmp_path/runs/run."""
    for name in ("data", "validation"):
        write_data(tmp_path / f"{name}.safetensors", inputs_of(1))
    config = tmp_path / "run.toml"
    config.write_text(CONFIG.format(folder=tmp_path))
    onebatch.run(1, "train", config)
    return config


@pytest.fixture
def predict(onebatch, trained, tmp_path):
    """What the file holds, and what was said."""

    def run(ranks=1, *words, out="out.safetensors", code=0, config=trained):
        said = onebatch.run(ranks, "predict", config, "--checkpoint", tmp_path / "runs/run", "--out", tmp_path / out, *words, code=code)
        return (read_safetensors(tmp_path / out), said) if code == 0 else said

    return run


def forward(folder, inputs):
    """The same model on the exported weights, in numpy."""
    layer = {name: np.array(values) for name, values in read_safetensors(folder / "weights.safetensors").items()}
    hidden = np.maximum(0.0, np.array(inputs) @ layer["layer0.weight"].reshape(8, WIDTH).T + layer["layer0.bias"])
    return hidden @ layer["layer1.weight"].reshape(CLASSES, 8).T + layer["layer1.bias"]


@pytest.fixture
def weights(onebatch, trained, tmp_path):
    onebatch.run(1, "export", tmp_path / "runs/run", "--to", tmp_path / "weights.safetensors")
    return tmp_path


def test_outputs_are_those_of_the_exported_weights_in_the_order_of_the_samples(predict, weights):
    found, said = predict(1, "--json", weights / "predict.json")
    assert sorted(found) == ["outputs", "sample"] and list(found["sample"]) == list(range(ROWS))
    outputs = np.array(found["outputs"]).reshape(ROWS, CLASSES)
    np.testing.assert_allclose(outputs, forward(weights, inputs_of(1)), rtol=1e-13, atol=1e-14)
    assert f"out.safetensors has what {weights}/runs/run/checkpoints/step-3 returns for {ROWS} samples (data.validation of {weights}/validation.safetensors): sample [700], outputs [700, 3]" in said
    document = read_json(weights / "predict.json")
    assert document["data"] == "validation" and document["path"] == f"{weights}/validation.safetensors"
    assert document["samples"] == ROWS and document["checkpoint"] == f"{weights}/runs/run/checkpoints/step-3"
    assert document["tensors"] == [{"name": "sample", "type": "I64", "sizes": [ROWS]}, {"name": "outputs", "type": "F64", "sizes": [ROWS, CLASSES]}]


@pytest.mark.parametrize("sets", ([], ["precision.compute=\"float32\"", "precision.parameters=\"float32\""]), ids=("float64", "float32"))
def test_any_ranks_write_the_same_bytes(predict, tmp_path, sets):
    for ranks in (1, 2, 3, 4):
        predict(ranks, *settings(*sets), out=f"{ranks}.safetensors")
    for ranks in (2, 3, 4):
        assert (tmp_path / f"{ranks}.safetensors").read_bytes() == (tmp_path / "1.safetensors").read_bytes()


def test_the_file_is_one_that_other_programs_read(predict, tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    found, _ = predict(2)
    read = numpy.load_file(tmp_path / "out.safetensors")
    assert read["outputs"].shape == (ROWS, CLASSES) and read["sample"].dtype == np.int64
    assert read["outputs"].ravel().tolist() == list(found["outputs"])


def test_a_part_of_the_data_has_the_numbers_that_its_samples_have_in_the_whole(predict, weights, trained):
    trained.write_text(trained.read_text().replace(validation_of(weights), "[data.validation]\nfraction = 0.2\n"))
    validation, _ = predict(3)
    training, _ = predict(2, "--data", "train", out="train.safetensors")
    assert len(validation["sample"]) == 140 and sorted(validation["sample"] + training["sample"]) == list(range(ROWS))
    expected = forward(weights, inputs_of(1))
    for found in (validation, training):
        outputs = np.array(found["outputs"]).reshape(-1, CLASSES)
        np.testing.assert_allclose(outputs, expected[list(found["sample"])], rtol=1e-13, atol=1e-14)


def test_new_samples_need_no_labels(predict, weights):
    write_data(weights / "new.safetensors", inputs_of(9, 11), labels=False)
    found, _ = predict(2, "--data", "train", *settings(f'data.path="{weights}/new.safetensors"', 'data.target=""'))
    np.testing.assert_allclose(np.array(found["outputs"]).reshape(11, CLASSES), forward(weights, inputs_of(9, 11)), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("data, words", (("train", "the training data of"), ("all", "all data of")))
def test_which_samples_they_are_is_said(predict, tmp_path, data, words):
    _, said = predict(2, "--data", data, "--json", tmp_path / "predict.json")
    assert f"returns for {ROWS} samples ({words} {tmp_path}/data.safetensors): " in said
    document = read_json(tmp_path / "predict.json")
    assert document["data"] == data and document["path"] == f"{tmp_path}/data.safetensors"


def test_other_data_are_not_passed_over_for_validations(predict, tmp_path):
    write_data(tmp_path / "new.safetensors", inputs_of(9, 11))
    path = f'data.path="{tmp_path}/new.safetensors"'
    for other in (path, f"data.path={tmp_path}/new.safetensors", 'data.files=["new.safetensors"]'):
        said = predict(2, *settings(other), code=2)
        assert f"--set {other} gives other data" in said and "add --data all (or --data train, --data validation)" in said
    assert not (tmp_path / "out.safetensors").exists()
    found, said = predict(2, "--data", "all", *settings(path))
    assert len(found["sample"]) == 11 and f"(all data of {tmp_path}/new.safetensors)" in said
    for told in (("--data", "validation"), settings(f'data.validation.path="{tmp_path}/validation.safetensors"')):
        found, _ = predict(2, "--force", *told, *settings(path))
        assert len(found["sample"]) == ROWS


def test_what_is_read_is_not_written_over(predict, tmp_path):
    files = [tmp_path / f"{name}.safetensors" for name in ("data", "validation")]
    before = [file.read_bytes() for file in files]
    for file in files:
        for more in ((), ("--force",)):
            assert f"--out {file} is read here: name another file" in predict(2, *more, out=file.name, code=2)
    for place in (f'data.path="{tmp_path}/d*.safetensors"', f'data.path="{tmp_path}"'):
        assert "data.safetensors is read here" in predict(1, "--data", "all", "--force", *settings(place), out="data.safetensors", code=2)
    assert [file.read_bytes() for file in files] == before


def test_one_sample_is_enough(predict, weights):
    write_data(weights / "new.safetensors", inputs_of(9, 1))
    found, _ = predict(3, "--data", "train", *settings(f'data.path="{weights}/new.safetensors"'))
    assert list(found["sample"]) == [0] and len(found["outputs"]) == CLASSES


def test_what_does_not_fit_at_once_is_computed_in_parts(predict, weights):
    """A block of 256 samples needs 256 x (5 + 8 + 3) numbers of 8 bytes and more."""
    found, _ = predict(2, *settings('simulate.devices=[{memory = "24KiB"}, {memory = "16KiB"}]'))
    np.testing.assert_allclose(np.array(found["outputs"]).reshape(ROWS, CLASSES), forward(weights, inputs_of(1)), rtol=1e-13, atol=1e-14)


def test_a_file_that_is_there_stays_unless_forced(predict, tmp_path):
    (tmp_path / "out.safetensors").write_bytes(b"precious")
    said = predict(2, code=2)
    assert f"--out {tmp_path}/out.safetensors is there already: add --force to replace it, or write another name" in said
    assert (tmp_path / "out.safetensors").read_bytes() == b"precious"
    found, _ = predict(2, "--force")
    assert len(found["sample"]) == ROWS
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


@pytest.mark.parametrize("words, out, reason", (
    ([], "out.npz", "out.npz: write a name that ends in .safetensors"),
    ([], "no/folder/out.safetensors", "there is no folder"),
    (["--data", "test"], "out.safetensors", "--data"),
    (settings("model.hidden=[9]"), "out.safetensors", "layer0.weight is [8, 5], the model's is [9, 5]"),
))
def test_mistakes_are_named_and_leave_nothing(predict, tmp_path, words, out, reason):
    assert reason in predict(2, *words, out=out, code=2)
    assert not (tmp_path / out).exists() and not list(tmp_path.glob("**/*.partial"))


def test_without_validation_data_the_way_out_is_said(predict, trained, tmp_path):
    trained.write_text(trained.read_text().replace(validation_of(tmp_path), ""))
    assert "write [data.validation], or --data train" in predict(2, code=2)


def test_a_full_disk_is_told_before_anything_is_computed_and_leaves_nothing(onebatch, trained, tmp_path):
    command = onebatch.command_line(1, "predict", trained, "--checkpoint", tmp_path / "runs/run", "--out", tmp_path / "out.safetensors")
    done = onebatch.finish(["bash", "-c", 'ulimit -f 8; trap "" XFSZ; exec "$@"', "-", *command])
    assert done.returncode == 1 and f"cannot write {tmp_path}/out.safetensors: File too large" in done.stderr
    assert not list(tmp_path.glob("out.*"))


def test_where_rank_0_cannot_write_all_ranks_end(predict, tmp_path):
    (tmp_path / "out.safetensors.partial").mkdir()
    assert f"cannot create {tmp_path}/out.safetensors: Is a directory" in predict(3, code=(1, 4))  # of whichever rank mpirun tells
    assert not (tmp_path / "out.safetensors").exists()
