#!/usr/bin/env python3
"""What a step of a small MLP, and of a small ResNet with exact BatchNorm, takes the host with CUDA graphs and without, in turns, on the null GPU, whose kernels take no time.
For a build with CUDA and tests."""
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/null_gpu"))
from environment import variables  # noqa: E402

BUILD = ROOT / "build"
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 9
SAMPLES, WIDTH = 8192, 784
CONFIGURATION = """
[run]
max_steps = 120
output_dir = "{folder}/runs"
device = "cuda"
[batch]
global_batch_size = 2048
micro_batch_size = 256
replan = "never"
{data_and_model}
[checkpoint]
every_steps = 0
[verify]
at_start = false
"""

CASES = {"MLP": """[data]
kind = "safetensors"
path = "{folder}/data.safetensors"
[model]
kind = "mlp"
hidden = [512, 512]
num_classes = 10""", "ResNet-8, exact BatchNorm": """[data]
kind = "synthetic"
shape = [3, 8, 8]
size = 8192
[model]
kind = "resnet"
stem = "cifar"
depth = 8
[batch_norm]
mode = "exact"
"""}


def write_data(path):
    sizes = {"x": ("F32", [SAMPLES, WIDTH], 4 * SAMPLES * WIDTH), "y": ("I64", [SAMPLES], 8 * SAMPLES)}
    header, begin = {}, 0
    for name, (kind, shape, size) in sizes.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, begin + size]}
        begin += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(begin))


def train(folder, name, *settings):
    given = dict(os.environ, **variables(BUILD, watched=False, lag_milliseconds=0), OMP_NUM_THREADS="1", XDG_CACHE_HOME=str(folder / "cache"))
    words = [word for setting in (f'run.name="{name}"', *settings) for word in ("--set", setting)]
    plan = [] if name == "plan" else ["--plan", str(folder / "runs/plan/plan.json"), "--timeline", str(folder / f"{name}.json")]
    subprocess.run([str(BUILD / "onebatch"), "train", str(folder / "c.toml"), "--quiet", *words, *plan], env=given, check=True, timeout=600, capture_output=True)


def milliseconds(folder, name):
    """Of a step, and of a micro-batch in it without its loading, where one is run by itself."""
    steps = [json.loads(line)["step_seconds"] for line in (folder / f"runs/{name}/metrics.jsonl").read_text().splitlines()]
    spans = [event["dur"] for event in json.loads((folder / f"{name}.json").read_text())["traceEvents"] if event.get("name") == "micro-batch"]
    return 1e3 * statistics.median(steps[20:]), 1e-3 * statistics.median(spans[200:]) if spans else None


if not (BUILD / "tests/libnull_gpu.so").exists():
    print("no null GPU in this build: left out")
    sys.exit(0)
for case, data_and_model in CASES.items():
    taken = {"false": [], "true": []}
    with tempfile.TemporaryDirectory() as where:
        folder = pathlib.Path(where)
        write_data(folder / "data.safetensors")
        (folder / "c.toml").write_text(CONFIGURATION.format(folder=folder, data_and_model=data_and_model.format(folder=folder)))
        train(folder, "plan", "run.max_steps=1")
        for i in range(ROUNDS):
            for graphs, times in taken.items():
                train(folder, f"{graphs}-{i}", f"run.cuda_graphs={graphs}")
                times.append(milliseconds(folder, f"{graphs}-{i}"))
    for place, what in enumerate(("a step of 8 micro-batches", "a micro-batch")):
        without, with_graphs = ([times[place] for times in taken[graphs]] for graphs in ("false", "true"))
        if None in without:
            continue
        ratios = [a / b for a, b in zip(without, with_graphs)]
        print(f"{case}, {what}: {statistics.median(without):.3f} ms without, {statistics.median(with_graphs):.3f} with CUDA graphs; {statistics.median(ratios):.2f} times as long "
              f"({min(ratios):.2f} to {max(ratios):.2f} in {ROUNDS} rounds)")
