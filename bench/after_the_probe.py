#!/usr/bin/env python3
"""500 steps at the micro-batch that the probe found, for both models and three budgets: how often they ran out of memory.

Budgets as arguments choose among them: after_the_probe.py 1GiB."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "build" / "onebatch"
MODELS = {
    "MLP 1024-1024-1024-10": 'shape = [1024]\nsize = 9000\n[model]\nkind = "mlp"\nhidden = [1024, 1024]\n',
    "ResNet-20 3x32x32": 'shape = [3, 32, 32]\nsize = 9000\n[model]\nkind = "resnet"\ndepth = 20\nstem = "cifar"\n',
}
BUDGETS = tuple(sys.argv[1:]) or ("128MiB", "512MiB", "1GiB")


def run(config, *arguments):
    return subprocess.run([str(PROGRAM), *map(str, arguments)], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=True, timeout=7200)


for name, text in MODELS.items():
    for memory in BUDGETS:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            config = folder / "c.toml"
            config.write_text(f'[run]\nmax_steps = 500\noutput_dir = "{folder}/runs"\n[batch]\nglobal_batch_size = 8192\n[data]\nkind = "synthetic"\n{text}'
                              f'[simulate]\ndevices = [{{memory = "{memory}"}}]\n[probe]\ncache = false\nsteps_per_trial = 1\n')
            run(config, "probe", config, "--json", folder / "p.json")
            rank = json.loads((folder / "p.json").read_text())["ranks"][0]
            size = rank["max_micro_batch"]
            run(config, "train", config, "--quiet", "--json", folder / "r.json", "--set", f"batch.global_batch_size={size}", "--set", f"batch.micro_batch_size={size}")
            done = json.loads((folder / "r.json").read_text())
            failures = sum(trial["out_of_memory"] for trial in rank["trials"])
            print(f"{name}, {memory}: {rank['largest_micro_batch']} found in {len(rank['trials'])} trials ({failures} out of memory); {done['steps']} steps at {size}: "
                  f"{done['out_of_memory_events']} out of memory", flush=True)
