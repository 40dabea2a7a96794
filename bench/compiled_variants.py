#!/usr/bin/env python3
"""Memory for time: a GPT of 4 layers on two played devices of which one has a third of the other's memory, as native code with the variant that computes activations again
(memory.recompute = "auto"), over the best without it: native code that keeps them, on both devices or on the larger one alone, and the program uncompiled, which may compute again.

compiled_variants.py [--program build/onebatch] [--rounds 3] [--small MIB ...]

--small: the memory of the smaller device. A figure is the median over the rounds, which take the plans in turn: planned time of a step, measured time of a step.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

try:
    import torch
    from safetensors.torch import save_file

    import onebatch
    from null_gpu_steps import Gpt
    from onebatch.compiling import compile_program
except ImportError:
    print("no PyTorch in this Python: left out; .deps/python/bin/python has it after ./dev test with ONEBATCH_CUDA=1")
    sys.exit(0)

CONFIG = """
[run]
max_steps = 10
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
kind = "adamw"
lr = 0.001
[probe]
cache = false
[verify]
at_start = false
[checkpoint]
every_minutes = 0
"""
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
LENGTH = 384
COMPILED, AGAIN = 'model.compiled="model.compiled"', 'memory.recompute="auto"'
# What: how many of the devices, settings.
PLANS = {
    "native code in variants": (2, [COMPILED, AGAIN]),
    "native code that keeps all": (2, [COMPILED]),
    "native code that keeps all, the larger device alone": (1, [COMPILED]),
    "uncompiled, computing again": (2, [AGAIN]),
    "uncompiled, keeping all": (2, []),
}


def train(program, folder, small, ranks, pairs):
    """Planned and measured seconds of a step, and who computes again; None: it does not fit."""
    devices = [f'{{memory = "{mebibytes}MiB"}}' for mebibytes in (3 * small, small)][:ranks]
    pairs = [*pairs, f"simulate.devices=[{', '.join(devices)}]"]
    command = [program, "train", "c.toml", "--quiet", "--json", "r.json", *(word for pair in pairs for word in ("--set", pair))]
    done = subprocess.run(["mpirun", "--bind-to", "none", "--oversubscribe", "-np", str(ranks), *command], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    if done.returncode == 3:
        return None
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    result = json.loads((folder / "r.json").read_text())
    plan = json.loads((folder / result["run_dir"] / "plan.json").read_text())
    return result["predicted_step_seconds"], result["step_seconds"]["median"], [rank["recomputes"] for rank in plan["ranks"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default=str(ROOT / "build/onebatch"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", type=float, nargs="+", default=[24.0])
    given = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        onebatch.export(Gpt(width=128, length=LENGTH), torch.randint(0, 512, (4, LENGTH)), folder / "model.pt2", check=False)
        compile_program(folder / "model.pt2", loss={"kind": "cross_entropy"}, recompute=True)
        save_file({"x": torch.randint(0, 512, (240, LENGTH)), "y": torch.randint(0, 512, (240, LENGTH))}, folder / "data.safetensors")
        (folder / "c.toml").write_text(CONFIG)
        for small in given.small:
            found = {}
            for _ in range(given.rounds):
                for what, (ranks, pairs) in PLANS.items():
                    found.setdefault(what, []).append(train(given.program, folder, small, ranks, pairs))
            print(f"devices of {3 * small} and {small} MiB")
            medians = {}
            for what, all_of in found.items():
                if None in all_of:
                    print(f"  {what}: does not fit")
                    continue
                medians[what] = [statistics.median(one[k] for one in all_of) for k in (0, 1)]
                print(f"  {what}: planned {1000 * medians[what][0]:.0f} ms, measured {1000 * medians[what][1]:.0f} ms; computing again: {all_of[-1][2]}")
            ours, *others = (medians.get(what, [math.inf] * 2) for what in PLANS)
            native = others[:2]
            for k, kind in enumerate(("planned", "measured")):
                best, of_native = (min(other[k] for other in among) for among in (others, native))
                print(f"  {kind}: {ours[k] / of_native:.2f} of the best native code without variants, {ours[k] / best:.2f} of the best of all")


main()
