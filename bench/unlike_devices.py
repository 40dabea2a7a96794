#!/usr/bin/env python3
"""Two simulated devices at 1.0 and 2.5: the throughput of both together against the sum of the two alone, and against an equal split. Interleaved, medians."""
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "build" / "onebatch"
ROUNDS = 5
CONFIG = """
[run]
max_steps = 30
output_dir = "{folder}/runs"
[batch]
global_batch_size = 256
[data]
kind = "synthetic"
shape = [3, 32, 32]
size = 2560
[model]
kind = "resnet"
depth = 8
stem = "cifar"
[probe]
cache = false
[checkpoint]
resume = "never"
"""
FAST, SLOW = '{memory = "512MiB", slowdown = 1.0}', '{memory = "512MiB", slowdown = 2.5}'
EQUAL = ["--set", "batch.micro_batch_size=128", "--set", "batch.gradient_accumulation_steps=1"]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def train(config, devices, extra=()):
    command = [str(PROGRAM), "train", str(config), "--quiet", "--set", f"simulate.devices=[{', '.join(devices)}]", "--json", str(config.parent / "r.json"), *extra]
    if len(devices) > 1:
        command = ["mpirun", "--bind-to", "none", "--oversubscribe", "-np", str(len(devices)), *command]
    subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, check=True, capture_output=True, timeout=300)
    result = json.loads((config.parent / "r.json").read_text())
    return 256 / result["step_seconds"]["median"], result


with tempfile.TemporaryDirectory() as folder:
    config = pathlib.Path(folder) / "c.toml"
    config.write_text(CONFIG.format(folder=folder))
    of_sum, of_equal, predicted = [], [], []
    for _ in range(ROUNDS):
        fast, _r = train(config, [FAST])
        both, result = train(config, [FAST, SLOW])
        slow, _r = train(config, [SLOW])
        equal, _r = train(config, [FAST, SLOW], EQUAL)
        of_sum.append(both / (fast + slow))
        of_equal.append(both / equal)
        predicted.append(result["predicted_step_seconds"] / result["step_seconds"]["median"])
    print(f"both together over the sum of the two alone: {statistics.median(of_sum):.3f} ({min(of_sum):.3f} to {max(of_sum):.3f})")
    print(f"the plan over an equal split: {statistics.median(of_equal):.2f} times ({min(of_equal):.2f} to {max(of_equal):.2f})")
    print(f"predicted over measured step time: {statistics.median(predicted):.3f} ({min(predicted):.3f} to {max(predicted):.3f})")
