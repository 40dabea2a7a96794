"""Compiled programs on the stand-in: real code for a card that is not here, made by the real compiler and launched by the real loader. What it computes a card alone can tell."""
import os
import pathlib
import re
import sys

import pytest
import torch
from torch import nn

pytest.importorskip("triton", reason="it makes a GPU's code, and stand-ins for CUDA's libraries come without")
import onebatch as package  # noqa: E402
from compiled_cases import SMOOTHED, Mlp  # noqa: E402
from null_gpu.runs import EXPORTED, counts_between, expect_trained  # noqa: E402
from null_gpu.stand_in import NullGpu  # noqa: E402
from program import read_json  # noqa: E402

MORE = "[verify]\nat_start = false\n" + SMOOTHED


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b, self.other, self.last = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 4)

    def forward(self, x):
        return self.last(torch.relu(self.other(self.b(torch.relu(self.norm(self.a(x)))))).mean((2, 3)))


class Compiled:
    """A program, and the native code that a run has made of it for its own GPU, of compute capability 9.0."""

    def __init__(self, build, folder, model, shape, mode="local"):
        self.null_gpu, self.folder, self.mode = NullGpu(build, folder), folder, mode
        torch.manual_seed(5)
        package.export(model, torch.randn(3, *shape), folder / "model.pt2", check=False)
        package.save_dataset(folder / "data.safetensors", x=torch.randn(24, *shape), y=torch.randint(0, 4, (24,)))
        os.environ["ONEBATCH_PYTHON"] = sys.executable
        self.done = self.null_gpu.run(1, "train", self.config(folder, compiled="auto"), "--set", "run.deterministic=true", seconds=600, watched=False)
        found = re.search(r"(\S+) is a compiled program", self.done.words)
        self.package = found and found[1]

    def config(self, folder, steps=3, compiled=None, mode=None, micro=6):
        path = folder / f"run-{steps}.toml"
        text = EXPORTED.format(steps=steps, folder=self.folder, runs=folder / "runs", inputs='["x"]', micro=micro, model=f'compiled = "{compiled or self.package}"', compute="float32", mode=mode or self.mode, recompute='"off"')
        path.write_text(text + MORE)
        return path


@pytest.fixture(scope="module")
def compiled(request, tmp_path_factory):
    made = Compiled(request.config.getoption("--build"), tmp_path_factory.mktemp("compiled"), Mlp(), (6,))
    assert made.done.code == 0 and made.package, made.done.words
    return made


def test_the_package_says_for_which_card_it_is(compiled):
    machine = read_json(pathlib.Path(compiled.package) / "compiled.json")["machine"]
    assert (machine["device"], machine["capability"]) == ("cuda", "9.0")


@pytest.mark.parametrize("ranks", (1, 2))
def test_it_trains(compiled, tmp_path, ranks):
    done = compiled.null_gpu.run(ranks, "train", compiled.config(tmp_path))
    expect_trained(done, 3, tmp_path)
    assert "is a compiled program" in done.words


def test_batch_norms_wait_for_each_other(request, tmp_path):
    """In one package for both modes: several micro-batches in turn, and one after the other. Whether the code of the one before is done the package asks the device, which no error may be left of."""
    made = Compiled(request.config.getoption("--build"), tmp_path, Convolutions(), (2, 9, 9), "exact")
    assert made.done.code == 0 and made.package, made.done.words
    for ranks, mode in ((1, "sync"), (2, "exact")):
        runs = tmp_path / mode
        runs.mkdir()
        done = made.null_gpu.run(ranks, "train", made.config(runs, mode=mode, micro=3))
        expect_trained(done, 3, runs)
        assert "is a compiled program" in done.words


@pytest.mark.parametrize("graphs, replays", (("true", 2), ("false", 0)))
def test_it_runs_as_a_cuda_graph_and_stops_the_host_never(compiled, tmp_path, graphs, replays):
    changes = ["--set", f"run.cuda_graphs={graphs}"]
    (counts,), words = counts_between(compiled.null_gpu, tmp_path, lambda steps: compiled.config(tmp_path, steps), changes=changes)
    assert counts["host_stops"] == 0, words
    assert counts["graph_launches"] == replays, words
    assert "kernel by kernel" not in words


@pytest.mark.parametrize("devices, device, named", (
    ([{"compute_capability": "8.0"}], "cuda", "was made for a GPU of compute capability 9.0, and this one's is 8.0"),
    ([{}], "cpu", "was made for a GPU"),
))  # fmt: skip
def test_another_device_is_refused_by_name(compiled, tmp_path, devices, device, named):
    done = compiled.null_gpu.run(1, "train", compiled.config(tmp_path), "--set", f'run.device="{device}"', devices=devices)
    assert done.code == 2 and named in done.words, done.words


@pytest.mark.parametrize("mebibytes, code", ((440, 3), (4096, 0)))
def test_memory_that_ends_in_its_code_is_out_of_memory(compiled, tmp_path, mebibytes, code):
    rows = 1 << 16
    package.save_dataset(tmp_path / "data.safetensors", x=torch.randn(rows, 6), y=torch.randint(0, 4, (rows,)))
    config = compiled.config(tmp_path, steps=1)
    config.write_text(config.read_text().replace(f"{compiled.folder}/data", f"{tmp_path}/data").replace("micro_batch_size = 6", f"micro_batch_size = {rows}").replace("= 12", f"= {rows}"))
    done = compiled.null_gpu.run(1, "train", config, "--set", "run.cuda_graphs=false", devices=[{"memory": mebibytes << 20}])
    assert done.code == code and ("does not fit" in done.words) == (code == 3), done.words
