#!/usr/bin/env python3
"""Exact BatchNorm in float32: our gradient's error against float64 over that of one single batch, over 20 batches of ResNet-18.

usage: bench/exact_in_float32.py [build/onebatch] [side of the images]
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
SIDE = int(sys.argv[2]) if len(sys.argv) > 2 else 32
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1")
CONFIG = """
[run]
max_steps = 1
[batch]
global_batch_size = 32
micro_batch_size = [9, 7]
[data]
kind = "synthetic"
shape = [3, {side}, {side}]
size = 640
[model]
kind = "resnet"
depth = 18
[batch_norm]
mode = "exact"
"""


def main():
    ratios, ours, single = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        config, report = pathlib.Path(folder) / "c.toml", pathlib.Path(folder) / "v.json"
        config.write_text(CONFIG.format(side=SIDE))
        for seed in range(1, 21):
            command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", PROGRAM, "verify", str(config), "--set", f"run.seed={seed}", "--json", str(report)]
            done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
            if done.returncode not in (0, 5):
                sys.exit(done.stdout + done.stderr)
            verified = json.loads(report.read_text())
            ours.append(verified["relative_l2"])
            single.append(verified["reference_relative_l2"])
            ratios.append(ours[-1] / single[-1])
    print(f"ResNet-18 at 3x{SIDE}x{SIDE}, 20 batches of 32 on 2 ranks, micro-batches of 9 and 7: error against float64, ours {statistics.median(ours):.2e}, one single batch {statistics.median(single):.2e} "
          f"(medians); ours over the single batch's: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
