#!/usr/bin/env python3
"""A device becomes three times slower in mid-run: how soon there is a new plan, how idle the ranks are under it, how often plans change in steady steps."""
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
CHANGE = 60
LAST = 700
CONFIG = """
[run]
max_steps = {last}
output_dir = "{folder}/runs"
[batch]
global_batch_size = 256
[data]
kind = "synthetic"
shape = [512]
size = 2048
[model]
kind = "mlp"
hidden = [1024, 1024]
[optimizer]
kind = "sgd"
[checkpoint]
resume = "never"
[probe]
cache = false
[simulate]
devices = [{{slowdown = 2.0{changes}}}, {{slowdown = 2.0}}]
"""


def train(folder, name, changes):
    config = folder / f"{name}.toml"
    config.write_text(CONFIG.format(folder=folder, changes=changes, last=LAST))
    subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", str(ROOT / "build" / "onebatch"), "train", str(config), "--quiet"],
                   env=ENVIRONMENT, check=True, capture_output=True)
    return [json.loads(line) for line in (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()]


def idle(lines):
    """The part of all ranks' time in which they wait for the slowest, in percent: the median of the steps."""
    return 100 * statistics.median(1 - statistics.mean(line["compute_seconds"]) / max(line["compute_seconds"]) for line in lines)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for repeat in range(3):
        steady = train(folder, f"steady-{repeat}", "")
        print(f"steady: {steady[-1]['plan'] - steady[0]['plan']} new plans in {LAST} steps, idle {idle(steady):.1f} % (median of the steps)", flush=True)
        drift = train(folder, f"drift-{repeat}", f", changes = [{{step = {CHANGE}, slowdown = 6.0}}]")
        before = drift[CHANGE - 2]["plan"]
        answered = next((line["step"] for line in drift if line["plan"] > before), None)
        if answered is None:
            print("drift: NO new plan")
            continue
        after = [line for line in drift if line["step"] > answered + 100]
        print(f"drift: a new plan {answered - CHANGE} steps after the change, idle {idle(drift[answered:answered + 100]):.1f} % in the 100 steps after it and "
              f"{idle(after):.1f} % in the {len(after)} after those; {after[-1]['plan'] - before} new plans in all, {after[-1]['plan'] - after[0]['plan']} of them in those last steps", flush=True)
