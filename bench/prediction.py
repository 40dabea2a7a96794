#!/usr/bin/env python3
"""The predicted step time against the measured median, for unlike played devices on 2 ranks: models, speeds and batches of several kinds, each from a probe of its own."""
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
ROUNDS = 3
MLP = '[data]\nkind = "synthetic"\nshape = [512]\nsize = 2048\n[model]\nkind = "mlp"\nhidden = [1024, 1024]\n'
RESNET = '[data]\nkind = "synthetic"\nshape = [3, 32, 32]\nsize = 2048\n[model]\nkind = "resnet"\ndepth = 8\nstem = "cifar"\n'
CASES = [(name, model, batch, slowdowns) for name, model, batch in (("MLP", MLP, 256), ("MLP", MLP, 1000), ("ResNet-8", RESNET, 64), ("ResNet-8", RESNET, 200))
         for slowdowns in ((1.0, 2.5), (1.5, 2.0), (1.0, 4.0))]
CONFIG = """
[run]
max_steps = 40
output_dir = "{folder}/runs"
[batch]
global_batch_size = {batch}
replan = "never"
{model}
[checkpoint]
resume = "never"
[probe]
cache = false
[simulate]
devices = [{{memory = "{memory}", slowdown = {first}}}, {{memory = "{memory}", slowdown = {second}}}]
"""

ratios = []
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for _ in range(ROUNDS):
        for label, model, batch, (first, second) in CASES:
            config = folder / "c.toml"
            config.write_text(CONFIG.format(folder=folder, batch=batch, model=model, memory="96MiB", first=first, second=second))
            subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", str(ROOT / "build" / "onebatch"), "train", str(config), "--quiet",
                            "--json", str(folder / "r.json")], env=ENVIRONMENT, check=True, capture_output=True)
            result = json.loads((folder / "r.json").read_text())
            ratios.append(result["predicted_step_seconds"] / result["step_seconds"]["median"])
            print(f"{label} batch {batch}, slowdowns {first} and {second}: predicted over measured {ratios[-1]:.3f}", flush=True)
off = sorted(abs(ratio - 1) for ratio in ratios)
print(f"{len(ratios)} runs: median ratio {statistics.median(ratios):.3f}; off by {100 * statistics.median(off):.1f} % (median), {100 * off[int(0.95 * len(off))]:.1f} % (95 %)")
