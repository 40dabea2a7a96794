"""load_checkpoint(): what a real run has saved, as PyTorch takes it; runs that still go on, and what is broken."""
import json
import shutil
import warnings

import pytest

torch = pytest.importorskip("torch")
load_file = pytest.importorskip("safetensors.torch").load_file
save_file = pytest.importorskip("safetensors.torch").save_file

import onebatch as package  # noqa: E402
from onebatch import checkpoints  # noqa: E402
from program import Scratch  # noqa: E402

CONFIG = """
[run]
max_steps = 6
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = 8
micro_batch_size = 4
[data]
kind = "safetensors"
path = "{folder}/train.safetensors"
[model]
kind = "exported"
path = "{folder}/model.pt2"
[optimizer]
kind = "sgd"
lr = 0.1
[checkpoint]
every_steps = 2
keep = 3
"""


class Tied(torch.nn.Module):
    """One weight under two names, running statistics, and a buffer that is not saved."""

    def __init__(self):
        super().__init__()
        self.words, self.norm, self.head = torch.nn.Embedding(7, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 7, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)

    def forward(self, words):
        return self.head(self.norm(self.words(words).mean(1)) * self.scale)


@pytest.fixture(scope="module")
def trained(onebatch, tmp_path_factory):
    """The model as it was, and the run's folder."""
    folder = tmp_path_factory.mktemp("trained")
    torch.manual_seed(1)
    model, words = Tied(), torch.randint(0, 7, (40, 3))
    package.export(model, words[:4], folder / "model.pt2", check=False)
    package.save_dataset(folder / "train.safetensors", x=words, y=words[:, 0])
    scratch = Scratch(folder, CONFIG.replace("{folder}", str(folder)))
    onebatch.run(1, "train", scratch.config)
    return model, scratch.runs / "run"


@pytest.fixture(scope="module")
def averaged(trained, onebatch):
    """A run of the same model that keeps averages."""
    runs = trained[1].parent
    onebatch.run(1, "train", runs.parent / "run.toml", "--set", "optimizer.ema_decay=0.7", "--set", 'run.name="averaged"')
    return runs / "averaged"


@pytest.fixture
def run(trained, tmp_path):
    """A copy that may be broken."""
    shutil.copytree(trained[1], tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def same(found, file):
    expected = load_file(file)
    return set(found) == set(expected) and all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_runs_newest_checkpoint_loads_strictly(trained):
    model, run = trained
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    loaded = Tied()
    loaded.load_state_dict(package.load_checkpoint(run), strict=True)
    assert same(package.load_checkpoint(str(run)), run / "checkpoints/step-6/model.safetensors")
    assert not torch.equal(loaded.words.weight, before["words.weight"])
    assert loaded.head.weight is loaded.words.weight
    assert loaded.norm.num_batches_tracked > before["norm.num_batches_tracked"]


@pytest.mark.parametrize("of", ["checkpoints/step-2", "checkpoints/latest", "checkpoints/step-4/model.safetensors"])
def test_one_checkpoint_may_be_named(trained, of):
    run = trained[1]
    file = run / of / "model.safetensors" if not of.endswith(".safetensors") else run / of
    assert same(package.load_checkpoint(run / of), file)


@pytest.mark.parametrize("choice", ["auto", "raw", "ema"])
@pytest.mark.parametrize("of", ["", "checkpoints/step-4"])
def test_the_weights_are_those_that_the_program_exports(choice, of, averaged, onebatch, tmp_path):
    words = [] if choice == "auto" else ["--weights", choice]
    onebatch.run(1, "export", averaged / of, "--to", tmp_path / "exported.safetensors", *words)
    assert same(package.load_checkpoint(averaged / of, weights=choice), tmp_path / "exported.safetensors")


def test_averaged_weights_are_others_under_each_name_in_memory_of_its_own(averaged):
    raw, found = package.load_checkpoint(averaged, weights="raw"), package.load_checkpoint(averaged)
    assert {name for name in raw if not torch.equal(raw[name], found[name])} == {"words.weight", "head.weight", "norm.weight", "norm.bias"}
    assert torch.equal(found["words.weight"], found["head.weight"])
    assert found["words.weight"].data_ptr() != found["head.weight"].data_ptr()
    Tied().load_state_dict(found, strict=True)


def test_averaged_weights_that_are_not_there_are_refused(trained):
    assert same(package.load_checkpoint(trained[1], weights="auto"), trained[1] / "checkpoints/step-6/model.safetensors")
    for of in ("", "checkpoints/step-4"):
        with pytest.raises(ValueError, match='step-[46] has no averaged weights, .* write weights="raw"'):
            package.load_checkpoint(trained[1] / of, weights="ema")
    with pytest.raises(ValueError, match='write "auto", "raw" or "ema"'):
        package.load_checkpoint(trained[1], weights="averaged")


def test_without_the_optimizers_file_only_raw_weights_are_there(run):
    """Whether there are averages, it alone says."""
    newest = run / "checkpoints/step-6"
    (newest / "optimizer.safetensors").unlink()
    assert same(package.load_checkpoint(run, weights="raw"), newest / "model.safetensors")
    with pytest.warns(UserWarning, match="lacks .*optimizer.safetensors.*step-4 is taken instead"):
        package.load_checkpoint(run)
    with pytest.raises(FileNotFoundError, match="optimizer.safetensors"):
        package.load_checkpoint(newest)


def test_tensors_do_not_share_memory_and_may_be_changed(trained):
    found = package.load_checkpoint(trained[1])
    kept = found["norm.weight"].clone()
    for name, tensor in found.items():
        if name != "norm.weight":
            tensor.zero_()
    assert torch.equal(found["norm.weight"], kept)


def test_one_that_is_being_written_is_no_checkpoint(run):
    shutil.copytree(run / "checkpoints/step-6", run / "checkpoints/.step-8.partial")
    assert same(package.load_checkpoint(run), run / "checkpoints/step-6/model.safetensors")


def test_the_one_that_was_saved_when_a_run_was_killed_is_taken_though_latest_is_older(run):
    link = run / "checkpoints/latest"
    link.unlink()
    link.symlink_to("step-2")
    assert same(package.load_checkpoint(run), run / "checkpoints/step-6/model.safetensors")


@pytest.mark.parametrize("broken", ["cut", "no manifest", "no model", "altered header"])
def test_a_broken_one_is_named_and_the_one_before_it_taken(run, broken):
    newest = run / "checkpoints/step-6"
    file = newest / "model.safetensors"
    content = file.read_bytes()
    {"cut": lambda: file.write_bytes(content[:-1]), "no manifest": (newest / "manifest.json").unlink, "no model": file.unlink,
     "altered header": lambda: file.write_bytes(content[:8] + b"x" + content[9:])}[broken]()
    with pytest.warns(UserWarning, match="step-6.*step-4 is taken instead"):
        assert same(package.load_checkpoint(run), run / "checkpoints/step-4/model.safetensors")
    with pytest.raises((ValueError, FileNotFoundError)):
        package.load_checkpoint(newest)


def alter(file):
    """The last byte, which is a number's."""
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_one_with_an_altered_number_is_passed_over(name, averaged, tmp_path):
    pytest.importorskip("xxhash")
    run = shutil.copytree(averaged, tmp_path / "run", symlinks=True)
    newest, before = run / "checkpoints/step-6", package.load_checkpoint(run / "checkpoints/step-4")
    alter(newest / name)
    with pytest.warns(UserWarning, match=f"step-6/{name} was altered: its checksum is not the manifest's: step-4 is taken instead"):
        found = package.load_checkpoint(run)
    assert all(torch.equal(found[key], tensor) for key, tensor in before.items())
    with pytest.raises(ValueError, match="was altered"):
        package.load_checkpoint(newest)


def test_without_xxhash_sizes_alone_are_compared(run, monkeypatch):
    monkeypatch.setattr(checkpoints, "xxhash", None)
    file = run / "checkpoints/step-6/model.safetensors"
    alter(file)
    assert same(package.load_checkpoint(run), file)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="step-6.*step-4 is taken instead"):
        package.load_checkpoint(run)


def test_a_run_that_goes_on_takes_one_away_while_it_is_read(run, monkeypatch):
    """As many are kept as are needed for one."""
    newest, read = run / "checkpoints/step-6", checkpoints.read_tensors

    def meanwhile(path):
        monkeypatch.setattr(checkpoints, "read_tensors", read)
        shutil.copytree(newest, run / "checkpoints/step-8")
        for step in (2, 4, 6):
            shutil.rmtree(run / f"checkpoints/step-{step}")
        return read(path)

    monkeypatch.setattr(checkpoints, "read_tensors", meanwhile)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(package.load_checkpoint(run), run / "checkpoints/step-8/model.safetensors")


def test_where_none_is_whole_each_is_named(run):
    for step in (2, 4, 6):
        (run / f"checkpoints/step-{step}/manifest.json").unlink()
    with pytest.raises(ValueError, match="no whole checkpoint: .*step-6.*step-4.*step-2"):
        package.load_checkpoint(run)


def test_a_run_without_a_checkpoint_is_told_from_what_is_no_run(run, tmp_path):
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(FileNotFoundError, match="has no checkpoint yet"):
        package.load_checkpoint(run)
    for none in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="give runs/NAME"):
            package.load_checkpoint(none)


def test_every_type_of_the_format_is_read(run, monkeypatch):
    types = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
             torch.uint16, torch.uint32)  # fmt: skip
    file, manifest = run / "checkpoints/step-6/model.safetensors", run / "checkpoints/step-6/manifest.json"
    save_file({str(dtype): torch.tensor([[0, 1, 1]]).to(dtype) for dtype in types} | {"none": torch.zeros(0, 3), "one": torch.tensor(2.5)}, file)
    written = json.loads(manifest.read_text())
    written["files"]["model.safetensors"]["bytes"] = file.stat().st_size
    manifest.write_text(json.dumps(written))
    monkeypatch.setattr(checkpoints, "xxhash", None)  # its checksum is not known here
    assert same(package.load_checkpoint(run), file)
