"""A small program, its native code and data, and how far two trainings of it are apart."""
import json
import os
import pathlib
import re
import sys
import time
import warnings
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F

import onebatch as package
from onebatch.__main__ import main
from program import SGD_IN_FLOAT64, Scratch, settings

CONFIG = """
[run]
max_steps = 3
output_dir = "{runs}"
[batch]
global_batch_size = 10
micro_batch_size = 4
[data]
kind = "safetensors"
path = "{folder}/train.safetensors"
inputs = ["x"]
target = "y"
[model]
kind = "exported"
path = "{folder}/model.pt2"
[probe]
steps_per_trial = 1
""" + SGD_IN_FLOAT64
AS_SMOOTHED = ["--loss", "cross_entropy", "--label-smoothing", "0.1"]
OWN_LOSS = '[loss]\nkind = "model"\n'
SMOOTHED = "[loss]\nlabel_smoothing = 0.1\n"
WORDS = 11
PYTHON = {"ONEBATCH_PYTHON": sys.executable}
USED = "is a compiled program: it is code, and runs with your rights"


class Mlp(nn.Module):
    """Two matrices that are one, a parameter that is not trained, one of a single number, a constant, and dropout, also with the samples second."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
        self.c.weight = self.b.weight
        self.a.bias.requires_grad_(False)
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        h = F.dropout(torch.tanh(self.b(torch.tanh(self.a(x)) * self.scale.exp())), 0.3, self.training)
        return self.d(F.dropout(torch.tanh(self.c(h)).t(), 0.5, self.training).t()) * torch.tensor([1.0, 0.5, 2.0, 1.5])


MLP = (Mlp, lambda: torch.randn(3, 6), {}, lambda: (torch.randn(23, 6), torch.randint(0, 4, (23,))), SMOOTHED, AS_SMOOTHED)


class Segments(nn.Module):
    """Classes second, of as many positions as are given."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(2, 6, 3, padding=1), nn.Conv1d(6, 4, 1)

    def forward(self, x):
        return self.b(F.dropout(torch.tanh(self.a(x)), 0.3, self.training))


SEGMENTS = (
    Segments,
    lambda: torch.randn(3, 2, 7),
    {"dynamic": {"x": {2: "length"}}},
    lambda: (torch.randn(23, 2, 9), torch.randint(0, 4, (23, 9))),
    "[loss]\nignore_index = 1\nclass_weights = [1.0, 7.0, 0.25, 0.0]\n",
    ["--loss", "cross_entropy", "--ignore-index", "1", "--class-dim", "second", "--class-weights", "1,7,0.25,0"],
)


class Exported:
    """A program, and data."""

    def __init__(self, folder, case, precision="float64"):
        make, example, more, data, rest, _ = case
        torch.manual_seed(5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            package.export(make(), example(), folder / "model.pt2", check=False, **more)
        tensors = dict(zip(("x", "y", "weights"), data()))
        package.save_dataset(folder / "train.safetensors", **tensors)
        config = CONFIG.replace('target = "y"', 'target = "y"\nweights = "weights"') if "weights" in tensors else CONFIG
        of_parameters = "float32" if precision.endswith("16") else precision
        in_precision = config.replace('parameters = "float64"', f'parameters = "{of_parameters}"').replace("float64", precision)
        self.scratch = Scratch(folder, in_precision.replace("{folder}", str(folder)) + rest)

    def train(self, onebatch, ranks=1, compiled=None, code=0, more=(), environment=None):
        """The weights, or where it is to fail what it says."""
        said, weights = self.train_and_say(onebatch, ranks, compiled, code, more, environment)
        return said if code else weights

    def train_and_say(self, onebatch, ranks=1, compiled=None, code=0, more=(), environment=None):
        run = f"r{len(list(self.scratch.runs.glob('*')))}"
        pairs = [f'run.name="{run}"', *more]
        if compiled is not None:
            pairs.append(f'model.compiled="{compiled}"')
        said = onebatch.run(ranks, "train", self.scratch.config, *settings(*pairs), code=code, environment=environment)
        return said, None if code else package.load_checkpoint(self.scratch.runs / run)


class Compiled(Exported):
    """And its native code, which evaluates where that is asked for."""

    def __init__(self, folder, case, precision="float64", evaluation=False):
        super().__init__(folder, case, precision)
        with mock.patch.object(sys, "argv", ["onebatch", "compile", str(folder / "model.pt2"), "--precision", precision, *case[-1], *["--no-evaluation"] * (not evaluation)]):
            assert main() == 0
        self.folder = folder / "model.compiled"


def kept_in(said):
    """Where a run has put its package."""
    return pathlib.Path(re.search(r"kept in (\S+)", said)[1])


def changed(place, swap):
    """A package's description of itself, by what `swap` does to it."""
    file = place / "compiled.json"
    document = json.loads(file.read_text())
    swap(document)
    file.write_text(json.dumps(document))


def error_of(found, expected):
    assert set(found) == set(expected)
    off = sum(float((found[name].double() - expected[name].double()).square().sum()) for name in expected)
    return (off / sum(float(tensor.double().square().sum()) for tensor in expected.values())) ** 0.5


def wait_until(holds, seconds=90):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "too late"
        time.sleep(0.05)


def running(folder):
    """Processes that were told of a folder."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and str(folder) in pathlib.Path(f"/proc/{name}/cmdline").read_text():
                found.append(name)
        except OSError:
            pass  # it has ended
    return found
