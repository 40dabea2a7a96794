#!/usr/bin/env python3
"""What the host does for a step on a GPU: launches and host time of the program and of PyTorch's eager mode on the same null GPU, interleaved.

null_gpu_steps.py [--build build] [--rounds 5] [--only NAME]. Without CUDA graphs and with them. Where kernels cost nothing, a step takes what the host takes. Convolutions take LibTorch's own kernels on
both sides, since the null GPU has no cuDNN: compare launches of one side with the other, not with a card's.
"""
import argparse
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/null_gpu"))
from environment import variables  # noqa: E402

try:
    import torch
    from safetensors.torch import save_file
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    print("no PyTorch in this Python: left out; .deps/python/bin/python has it after ./dev test with ONEBATCH_CUDA=1")
    sys.exit(0)

COUNTED = (3, 7)  # steps of runs that are apart in nothing else: a step's launches are the difference's
TIMED = 200
CONFIG = """
[run]
max_steps = {steps}
output_dir = "{folder}/runs"
device = "cuda"
cuda_graphs = {graphs}
[batch]
global_batch_size = {batch}
micro_batch_size = {batch}
replan = "never"
[data]
kind = "safetensors"
path = "{folder}/data.safetensors"
inputs = ["x"]
target = "y"
[model]
kind = "torchscript"
path = "{folder}/model.pt"
[optimizer]
kind = "adamw"
lr = 0.001
[probe]
steps_per_trial = 1
[verify]
at_start = false
[checkpoint]
every_steps = 0
"""


class Block(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        self.shortcut = nn.Identity() if before == width else nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet18():
    layers, before = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for width in (64, 128, 256, 512):
        layers += [Block(before, width, 1 if width == 64 else 2), Block(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.qkv, self.project = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(n, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(n, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, width=256, layers=4, heads=4, length=128, words=512):
        super().__init__()
        self.word, self.place = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width))
        self.layers, self.norm, self.head = nn.Sequential(*(Layer(width, heads) for _ in range(layers))), nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.norm(self.layers(self.word(tokens) + self.place)))


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


# name: model, batch, inputs, labels
MODELS = {
    "mlp": (mlp, 256, lambda n: torch.randn(n, 784), lambda n: torch.randint(0, 10, (n,))),
    "gpt": (Gpt, 8, lambda n: torch.randint(0, 512, (n, 128)), lambda n: torch.randint(0, 512, (n, 128))),
    "resnet18": (resnet18, 32, lambda n: torch.randn(n, 3, 32, 32), lambda n: torch.randint(0, 10, (n,))),
}


def eager(name, steps):
    """In a process on the null GPU: the median host time of a step."""
    make, batch, inputs, labels = MODELS[name]
    torch.backends.cudnn.enabled = False
    model = make().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    x, y = inputs(batch).pin_memory(), labels(batch).pin_memory()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        out = model(x.to("cuda", non_blocking=True))
        target = y.to("cuda", non_blocking=True)
        loss = F.cross_entropy(out.flatten(0, -2), target.flatten())
        loss.backward()
        optimizer.step()
        loss.item()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[len(times) // 5 :])


def on_null_gpu(build, folder, *command):
    """Launches of the process, and its output."""
    counts = folder / "counts"
    counts.unlink(missing_ok=True)
    simulated = variables(build, watched=False, devices=[{"memory": 80 << 30}], counts=str(counts), lag_milliseconds=0)
    done = subprocess.run(list(map(str, command)), env=dict(os.environ, **simulated, OMP_NUM_THREADS="1", XDG_CACHE_HOME=str(folder / "cache")), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command}\n{done.stdout}{done.stderr}")
    one = max((json.loads(line) for line in counts.read_text().splitlines()), key=lambda line: line["kernels"])
    return {key: one[key] for key in ("kernels", "blas", "memsets", "on_device", "to_device", "to_host", "host_stops", "graph_launches")}, done.stdout


def of_eager(build, folder, name, steps):
    counts, out = on_null_gpu(build, folder, sys.executable, __file__, "--eager", name, "--steps", steps)
    return counts, float(out.split()[-1])


def of_program(build, folder, name, steps, graphs="false"):
    """Under the plan that the first run makes."""
    plan = folder / "runs/plan/plan.json"
    config = folder / "c.toml"
    run = "plan" if not plan.exists() else f"r{time.monotonic_ns()}"
    config.write_text(CONFIG.format(folder=folder, steps=steps, batch=MODELS[name][1], graphs=graphs))
    counts, _ = on_null_gpu(build, folder, build / "onebatch", "train", config, "--quiet", "--set", f'run.name="{run}"', *(["--plan", plan] if plan.exists() else []))
    rows = [json.loads(line) for line in (folder / "runs" / run / "metrics.jsonl").read_text().splitlines()]
    return counts, statistics.median(row["step_seconds"] for row in rows[len(rows) // 5 :])


def a_step(side, **options):
    (few, _), (many, _) = (side(steps=steps, **options) for steps in COUNTED)
    return {key: (many[key] - few[key]) / (COUNTED[1] - COUNTED[0]) for key in few}


def launches(counts):
    return sum(counts[key] for key in ("kernels", "blas", "memsets", "on_device", "graph_launches"))


def compare(build, name, rounds):
    with tempfile.TemporaryDirectory(prefix="onebatch-null-gpu-") as scratch:
        folder = pathlib.Path(scratch)
        torch.manual_seed(1)
        make, batch, inputs, labels = MODELS[name]
        save_file({"x": inputs(8 * batch), "y": labels(8 * batch)}, folder / "data.safetensors")
        torch.jit.script(make()).save(str(folder / "model.pt"))
        of_program(build, folder, name, 1)
        sides = {"without graphs": functools.partial(of_program, build, folder, name), "with graphs": functools.partial(of_program, build, folder, name, graphs='"auto"'),
                 "eager": functools.partial(of_eager, build, folder, name)}  # fmt: skip
        counts = {words: a_step(side) for words, side in sides.items()}
        seconds = {words: [] for words in sides}
        for _ in range(rounds):
            for words, side in sides.items():
                seconds[words].append(side(steps=TIMED)[1])
    eager_launches = launches(counts["eager"])
    for words in list(sides)[:2]:
        ratios = [own / eager for own, eager in zip(seconds[words], seconds["eager"])]
        print(f"{name} {words}: host time {statistics.median(ratios):.2f} of eager's (of {', '.join(f'{ratio:.2f}' for ratio in sorted(ratios))}; the last {1e3 * seconds[words][-1]:.2f} and {1e3 * seconds['eager'][-1]:.2f} ms)")
        print(f"    launches {launches(counts[words]):.1f}, eager {eager_launches:.1f}: {launches(counts[words]) / eager_launches:.2f}; host stops {counts[words]['host_stops']:.1f}, eager {counts['eager']['host_stops']:.1f}")
        print(f"    {counts[words]}", flush=True)
    print(f"    eager {counts['eager']}", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only", choices=MODELS)
    options.add_argument("--eager", choices=MODELS, help=argparse.SUPPRESS)
    options.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.eager:
        print(eager(given.eager, given.steps))
        return
    if not (given.build / "tests/libnull_gpu.so").exists():
        print("no null GPU in this build: left out")
        return
    for name in [given.only] if given.only else MODELS:
        compare(given.build.resolve(), name, given.rounds)


if __name__ == "__main__":
    main()
