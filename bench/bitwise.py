#!/usr/bin/env python3
"""Step time of run.deterministic = "bitwise" over the fast mode at the same micro-batch and threads. That the bits are the same is a test: tests/cli/bitwise_test.py.

usage: bench/bitwise.py [build/onebatch]
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
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1")
CONFIG = """
[run]
max_steps = {steps}
name = "run"
output_dir = "{folder}"
deterministic = {deterministic}
[batch]
global_batch_size = {batch}
micro_batch_size = {micro}
{data}
{model}
[optimizer]
lr = 0.002
[comm]
check_replicas_every_steps = 0
[simulate]
devices = [{{slowdown = 1.0}}, {{slowdown = 1.0}}]
"""
DIGITS = '[data]\nkind = "idx"\npath = "data/digits"'
IMAGES = '[data]\nkind = "synthetic"\nshape = [3, 32, 32]\nsize = 4096'
MODELS = {
    "MLP 64-512-512-10, 128 of 512": (DIGITS, '[model]\nkind = "mlp"\nhidden = [512, 512]', 512, 128, 150),
    "ResNet-20, 16 of 64": (IMAGES, '[model]\nkind = "resnet"\ndepth = 20\nstem = "cifar"\n[batch_norm]\nfrozen = true', 64, 16, 8),
    "ResNet-18, 16 of 64": (IMAGES, '[model]\nkind = "resnet"\ndepth = 18\n[batch_norm]\nfrozen = true', 64, 16, 6),
    "ResNet-18, exact BatchNorm": (IMAGES, '[model]\nkind = "resnet"\ndepth = 18\n[batch_norm]\nmode = "exact"', 64, 16, 6),
}


def train(folder, ranks, deterministic, model):
    data, text, batch, micro, steps = model
    config = pathlib.Path(folder) / "c.toml"
    config.write_text(CONFIG.format(folder=folder, deterministic=deterministic, data=data, model=text, batch=batch, micro=micro, steps=steps))
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), PROGRAM, "train", str(config), "--quiet"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    run = pathlib.Path(folder) / "run"
    return statistics.median(json.loads(line)["step_seconds"] for line in open(run / "metrics.jsonl"))


def main():
    for name, model in MODELS.items():
        for ranks in (1, 2):
            ratios = []
            for _ in range(5):
                with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
                    fast, bitwise = train(one, ranks, "false", model), train(other, ranks, '"bitwise"', model)
                    ratios.append(bitwise / fast)
            print(f"{name}, {ranks} rank(s): a bitwise step takes {statistics.median(ratios):.3f} of a fast one ({min(ratios):.3f} to {max(ratios):.3f})", flush=True)


if __name__ == "__main__":
    main()
