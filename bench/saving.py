#!/usr/bin/env python3
"""For what share of a step a save holds training up: written beside the steps (checkpoint.background) and while they wait, in turn.

usage: bench/saving.py [build/onebatch [ROUNDS]]
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "onebatch").resolve())
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
CONFIG = """
[run]
max_steps = 9
name = "{name}"
output_dir = "{folder}"
[batch]
global_batch_size = {batch}
micro_batch_size = {micro}
[data]
kind = "synthetic"
shape = {shape}
size = 2048
[model]
{model}
[optimizer]
kind = "adam"
[checkpoint]
every_steps = 3
background = {background}
[verify]
at_start = false
[probe]
cache = false
steps_per_trial = 1
"""
MODELS = {
    "MLP 784-8192-8192-10 (74 M), 128 of 512": {"model": 'kind = "mlp"\nhidden = [8192, 8192]', "shape": [784], "batch": 512, "micro": 128},
    "ResNet-18 at 32 x 32, 16 of 64": {"model": 'kind = "resnet"\nstem = "cifar"', "shape": [3, 32, 32], "batch": 64, "micro": 16},
}


def share_of_a_step(folder, name, **settings):
    config = folder / "c.toml"
    config.write_text(CONFIG.format(folder=folder, name=name, **settings))
    subprocess.run([PROGRAM, "train", str(config), "--quiet"], env=dict(os.environ, OMP_NUM_THREADS="2"), check=True, stdout=subprocess.DEVNULL)
    result = json.loads((folder / name / "result.json").read_text())
    steps = [json.loads(line)["step_seconds"] for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    return result["checkpoint_seconds"] / result["checkpoints_saved"] / statistics.median(steps)


for model, settings in MODELS.items():
    shares = {"true": [], "false": []}
    for number in range(ROUNDS):
        for background, found in shares.items():
            with tempfile.TemporaryDirectory() as folder:
                found.append(share_of_a_step(pathlib.Path(folder), f"r{number}", background=background, **settings))
    beside, waiting = (100 * statistics.median(found) for found in shares.values())
    print(f"{model}: a save holds up for {beside:.2f} % of a step; while it is written training waits: {waiting:.1f} %")
