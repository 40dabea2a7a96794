#!/usr/bin/env python3
"""Exact BatchNorm by native code and by the program uncompiled: the gradient of a step in float64 against PyTorch's of the whole batch, on two uneven ranks, and the time of a step.

compiled_batch_norm.py [--program build/onebatch] [--rounds 3] [--seconds 24] [--only resnet18]... [--size 64]

Needs torchvision: .deps/python/bin/python with .deps/zoo in PYTHONPATH, after ./dev zoo. Both sides have one plan. A figure is the median over the rounds of native code's median step over the
uncompiled one's; behind it those of all rounds, and the uncompiled step. In a round the two take turns; --seconds: for each of them and round.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

try:
    import torch
    import torchvision
    from safetensors.torch import load_file
    from torch.nn import functional as F

    import onebatch
    from in_turn import in_turn, of_run
    from onebatch.compiling import compile_program
except ImportError as error:
    print(f"{error.name} is not in this Python: left out")
    sys.exit(0)

CONFIG = """
[run]
output_dir = "runs"
[batch]
global_batch_size = 24
replan = "never"
[data]
kind = "safetensors"
path = "data.safetensors"
inputs = ["x"]
target = "y"
[model]
kind = "exported"
path = "model.pt2"
[optimizer]
kind = "sgd"
lr = 0.001
[batch_norm]
mode = "exact"
[probe]
cache = false
steps_per_trial = 1
[verify]
at_start = false
[checkpoint]
every_minutes = 0
[log]
samples = true
"""
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
PLANS = {1: ["batch.micro_batch_size=6", "batch.gradient_accumulation_steps=4"], 2: ["batch.micro_batch_size=[5, 3]", "batch.gradient_accumulation_steps=3"]}


class Case:
    def __init__(self, program, folder, name, size):
        self.program, self.folder = program, folder
        torch.manual_seed(1)
        self.model = getattr(torchvision.models, name)(num_classes=10)
        self.data = {"x": torch.randn(48, 3, size, size), "y": torch.randint(0, 10, (48,))}
        onebatch.export(self.model, torch.randn(4, 3, size, size), folder / "model.pt2", check=False)
        onebatch.save_dataset(folder / "data.safetensors", **self.data)
        (folder / "c.toml").write_text(CONFIG)
        for precision in ("float32", "float64"):
            compile_program(folder / "model.pt2", folder / precision, precision, {"kind": "cross_entropy"}, shared_batch_norm=True, evaluation=False)

    def command(self, ranks, precision, compiled, steps, rate):
        """What trains so, and the folder of its run."""
        run = f"r{time.monotonic_ns()}"
        pairs = [*PLANS[ranks], f"run.max_steps={steps}", f"optimizer.lr={rate}", f'precision.compute="{precision}"', f'precision.parameters="{precision}"', f'run.name="{run}"']
        pairs += [f'model.compiled="{precision}"'] if compiled else []
        command = [self.program, "train", "c.toml", "--quiet", *(word for pair in pairs for word in ("--set", pair))]
        return ["mpirun", "--bind-to", "none", "--oversubscribe", "-np", str(ranks), *command], self.folder / "runs" / run

    def side(self, ranks, compiled):
        command, run = self.command(ranks, "float32", compiled, 1000000, 0.001)
        return of_run(command, run, cwd=self.folder, env=ENVIRONMENT)

    def gradient_error(self, compiled):
        """Of one step on two ranks, relative L2 over all parameters."""
        command, run = self.command(2, "float64", compiled, 1, 1.0)
        done = subprocess.run(command, cwd=self.folder, env=ENVIRONMENT, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        after = load_file(run / "checkpoints/step-1/model.safetensors")
        batch = json.loads((run / "samples.jsonl").read_text().splitlines()[0])["indices"]
        model = self.model.double().train()
        model.zero_grad()
        F.cross_entropy(model(self.data["x"][batch].double()), self.data["y"][batch]).backward()
        off = whole = 0.0
        for name, parameter in model.named_parameters():
            off += float((parameter.detach() - after[name] - parameter.grad).square().sum())
            whole += float(parameter.grad.square().sum())
        return (off / whole) ** 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default=str(ROOT / "build/onebatch"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=24.0, help="for each process and round")
    parser.add_argument("--only", action="append")
    parser.add_argument("--size", type=int, default=64)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in given.only or ["resnet18", "densenet121"]:
        with tempfile.TemporaryDirectory() as folder:
            case = Case(given.program, pathlib.Path(folder), name, given.size)
            errors = [case.gradient_error(compiled) for compiled in (False, True)]
            print(f"{name}: gradient of two ranks in float64, from PyTorch's of the whole batch: uncompiled {errors[0]:.1e}, native code {errors[1]:.1e}", flush=True)
            for ranks in PLANS:
                rounds = [in_turn([case.side(ranks, compiled) for compiled in (False, True)], given.seconds) for _ in range(given.rounds)]
                ratios = sorted(after / before for before, after in rounds)
                each = f"{', '.join(f'{ratio:.2f}' for ratio in ratios)}; uncompiled {1000 * statistics.median(one[0] for one in rounds):.0f} ms"
                print(f"{name}: {ranks} rank(s), float32: a step takes {statistics.median(ratios):.2f} of the time uncompiled ({each})", flush=True)


main()
