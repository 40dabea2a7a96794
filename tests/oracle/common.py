"""What the oracles share: the same models in PyTorch, the same data, and the program run as a user runs it."""
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from forked_starts import forked  # noqa: E402
DIGITS = ROOT / "data" / "digits"
torch.set_num_threads(1)
# What the configurations of scripted models have alike.
ALIKE = """
[run]
name = "run"
output_dir = "{folder}"
[data]
kind = "safetensors"
path = "{folder}/data.safetensors"
[model]
kind = "torchscript"
path = "{folder}/model.pt"
[optimizer]
kind = "sgd"
[precision]
compute = "float64"
parameters = "float64"
[probe]
steps_per_trial = 1
[log]
samples = true
"""


def read_idx(name):
    raw = gzip.open(DIGITS / (name + ".gz")).read()
    dimensions = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(dimensions)]
    return np.frombuffer(raw[4 + 4 * dimensions:], np.uint8).reshape(shape)


def digits(dtype):
    images, labels = read_idx("train-images-idx3-ubyte"), read_idx("train-labels-idx1-ubyte")
    return torch.tensor(images.copy()).to(dtype).unsqueeze(1) / 16, torch.tensor(labels.astype(np.int64))


class Mlp(nn.Module):
    def __init__(self, hidden=(64, 48), inputs=64, classes=10):
        super().__init__()
        widths = [inputs, *hidden, classes]
        for i in range(len(widths) - 1):
            setattr(self, f"layer{i}", nn.Linear(widths[i], widths[i + 1]))
        self.count = len(widths) - 1

    def forward(self, x):
        x = x.flatten(1)
        for i in range(self.count - 1):
            x = getattr(self, f"layer{i}")(x).relu()
        return getattr(self, f"layer{self.count - 1}")(x)


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.bn2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.downsample = None
        if before != after or stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class CifarResNet(nn.Module):
    def __init__(self, depth=8, channels=1, classes=10):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        before = 16
        for stage, after in enumerate((16, 32, 64)):
            blocks = []
            for i in range((depth - 2) // 6):
                blocks.append(Block(before, after, 2 if stage > 0 and i == 0 else 1))
                before = after
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def freeze_batch_norm(model):
    model.train()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eval()


def randomise_batch_norm(model):
    """Frozen statistics that are not 0 and 1, so that a mistake in them shows."""
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.uniform_(-0.2, 0.2)
            part.running_var.uniform_(0.5, 1.5)
            nn.init.uniform_(part.weight, 0.5, 1.5)


def contiguous_state(model):
    return {name: tensor.contiguous() for name, tensor in model.state_dict().items()}


def configuration(own):
    """ALIKE, and `own`, a configuration whose lines go before those of the same key."""
    tables = {}
    for line in (ALIKE + own).split("\n"):
        if line.startswith("["):
            table = tables.setdefault(line, {})
        elif line:
            table[line.split(" = ")[0]] = line
    return "\n".join(line for name, lines in tables.items() for line in (name, *lines.values())) + "\n"


def onebatch(program, ranks, arguments, expect=(0,), seconds=240):
    """Runs the program on so many ranks from the project's root; returns its output."""
    words, more = forked(program)
    command = [*words, *map(str, arguments)]
    environment = dict(os.environ, **more, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1")
    if ranks > 1:
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *command]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds)
    if done.returncode not in expect:
        sys.exit(f"{' '.join(command)}\nreturned {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def loaded(path):
    """The tensors of a safetensors file. Those of load_file() are its bytes on the disk, and become another run's when that writes the file again."""
    return load(pathlib.Path(path).read_bytes())


def relative_l2(ours, reference):
    error = sum(((ours[k].double() - reference[k].double()) ** 2).sum().item() for k in reference)
    norm = sum((reference[k].double() ** 2).sum().item() for k in reference)
    return (error / norm) ** 0.5


def scratch():
    return tempfile.TemporaryDirectory(prefix="onebatch-oracle-")


def read_json_lines(path):
    return [json.loads(line) for line in open(path)]


def batches_of(run):
    """Which samples the batches of a run's folder had."""
    return [line["indices"] for line in read_json_lines(run / "samples.jsonl")]


def report(good, what, said=""):
    """Prints a line, and behind it what was `said` where that is not good; returns how much is to be counted as failed."""
    print(f"{'ok  ' if good else 'FAIL'} {what}" + ("" if good or not said else f"\n{said}"), flush=True)
    return 0 if good else 1
