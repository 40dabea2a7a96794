"""Weights under a program that they were not trained in: refused or said, though every tensor has the name and the shape that it should."""
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")

import onebatch as package  # noqa: E402
from program import LOADER, ROOT, Scratch, settings  # noqa: E402

CONFIG = """
[run]
max_steps = 2
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = 8
micro_batch_size = 4
[data]
kind = "safetensors"
path = "{runs}/../train.safetensors"
[data.validation]
fraction = 0.25
[model]
kind = "exported"
path = "{runs}/../model.pt2"
[optimizer]
kind = "sgd"
lr = 0.1
"""
PROGRAM = """
import sys
import torch, onebatch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(5, 8), torch.nn.Linear(8, 3)
        self.register_buffer("scale", torch.tensor(SCALE), persistent=False)

    def forward(self, x):
        return self.second(torch.ACTIVATION(self.first(x)) * self.scale)

torch.manual_seed(int(sys.argv[2]))
onebatch.export(Net(), torch.randn(4, 5), sys.argv[1], check=False)
"""


def export(file, activation="tanh", scale=0.5, seed=1):
    """By a process of its own, as a script does it every time."""
    file.unlink(missing_ok=True)
    code = PROGRAM.replace("ACTIVATION", activation).replace("SCALE", str(scale))
    subprocess.run([sys.executable, "-c", code, file, str(seed)], check=True, capture_output=True, env={**LOADER, "PYTHONPATH": f"{ROOT}/python", "PATH": "/usr/bin:/bin"})


OTHERS = {"another operator": {"activation": "relu"}, "another constant": {"scale": 0.25}}


@pytest.fixture(scope="module")
def trained(onebatch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    scratch = Scratch(folder, CONFIG)
    export(folder / "model.pt2")
    for name, how in OTHERS.items():
        export(folder / f"{name}.pt2", **how)
    torch.manual_seed(1)
    package.save_dataset(folder / "train.safetensors", x=torch.randn(40, 5), y=torch.randint(0, 3, (40,)))
    onebatch.run(1, "train", scratch.config)
    return scratch


@pytest.fixture
def other(trained, tmp_path):
    """Puts another program where the run's was, and back again."""
    own = trained.path / "model.pt2"
    shutil.copy(own, tmp_path / "own.pt2")
    yield lambda name: shutil.copy(trained.path / f"{name}.pt2", own)
    shutil.copy(tmp_path / "own.pt2", own)


@pytest.mark.parametrize("name", OTHERS)
def test_a_run_does_not_go_on_with_another_program(name, trained, other, onebatch):
    other(name)
    said = onebatch.run(1, "train", trained.config, "--resume", *settings("run.max_steps=3"), code=2)
    assert "is of another run" in said and "the digest of model.path's program" in said


@pytest.mark.parametrize("name", OTHERS)
def test_eval_and_predict_say_so(name, trained, other, onebatch, tmp_path):
    other(name)
    run = trained.runs / "run"
    words = "is not the one that was trained with these weights"
    assert words in onebatch.run(1, "eval", trained.config, "--checkpoint", run)
    assert words in onebatch.run(1, "predict", trained.config, "--checkpoint", run, "--out", tmp_path / "out.safetensors")


@pytest.mark.parametrize("name", OTHERS)
def test_weights_are_not_put_into_another_program(name, trained, other, onebatch, tmp_path):
    other(name)
    said = onebatch.run(1, "export", trained.runs / "run", "--to", tmp_path / "out.pt2", code=2)
    assert "is not the program that was trained: it computes something else" in said
    assert not (tmp_path / "out.pt2").exists()


def test_the_same_model_exported_anew_is_the_same_program(trained, other, onebatch, tmp_path):
    """With other first weights, by another process."""
    export(trained.path / "model.pt2", seed=2)
    run = trained.runs / "run"
    assert "is not the one" not in onebatch.run(1, "eval", trained.config, "--checkpoint", run)
    onebatch.run(1, "export", run, "--to", tmp_path / "out.pt2")
    assert "resumed from" in onebatch.run(1, "train", trained.config, "--resume", *settings("run.max_steps=3"))
