#!/usr/bin/env python3
"""A device becomes three times slower in mid-run: how soon there is a new plan, how idle the ranks are under it, how often plans change in steady steps. First by
given times, as a GPU has them whatever the CPU's cores are slowed by, then by what the CPU takes."""
import argparse
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
global_batch_size = 1024
[data]
kind = "synthetic"
shape = [512]
size = 4096
[model]
kind = "mlp"
hidden = {hidden}
[optimizer]
kind = "sgd"
[checkpoint]
resume = "never"
[probe]
cache = false
[simulate]
devices = [{{slowdown = 1.0{times}{changes}}}, {{slowdown = 1.0{times}}}]
"""
# Steps of about 50 ms, either way.
GIVEN = {"hidden": "[128]", "times": ", step_seconds = [[1, 0.004], [16, 0.004], [512, 0.05]]"}
MEASURED = {"hidden": "[1024, 1024]", "times": ""}


def train(folder, name, changes, kind):
    config = folder / f"{name}.toml"
    config.write_text(CONFIG.format(folder=folder, changes=changes, last=LAST, **kind))
    subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", str(ROOT / "build" / "onebatch"), "train", str(config), "--quiet"],
                   env=ENVIRONMENT, check=True, capture_output=True)
    return [json.loads(line) for line in (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()]


def idle(lines):
    """The part of all ranks' time in which they wait for the slowest, in percent: the median of the steps."""
    return 100 * statistics.median(1 - statistics.mean(line["compute_seconds"]) / max(line["compute_seconds"]) for line in lines)


def new_plans(lines):
    """The steps that were the first under another plan."""
    return [line["step"] for before, line in zip(lines, lines[1:]) if line["plan"] > before["plan"]]


def machine(lines, step):
    """How each rank's time had changed before a new plan that no simulated change explains: the machine itself."""
    def typical(part):
        return [statistics.median(seconds) for seconds in zip(*(line["compute_seconds"] for line in part))]
    now = typical(lines[max(0, step - 1 - 32):step - 1])
    then = typical(lines[:64])
    return " and ".join(f"{new / old:.2f}" for new, old in zip(now, then))


def measure(kind, folder):
    print("Devices of given times:" if kind is GIVEN else "Devices that take a multiple of what the CPU takes:", flush=True)
    for repeat in range(3):
        steady = train(folder, f"steady-{repeat}", "", kind)
        print(f"steady: {len(new_plans(steady))} new plans in {LAST} steps, idle {idle(steady):.1f} % (median of the steps)", flush=True)
        for step in new_plans(steady):
            print(f"  before the one at step {step} the ranks took {machine(steady, step)} times what they took in the first 64 steps")
        drift = train(folder, f"drift-{repeat}", f", changes = [{{step = {CHANGE}, slowdown = 3.0}}]", kind)
        steps = [step for step in new_plans(drift) if step >= CHANGE]
        if not steps:
            print("drift: NO new plan")
            continue
        soon = drift[steps[0]:steps[0] + 100]
        later = drift[steps[0] + 100:]
        print(f"drift: new plans {[step - CHANGE for step in steps]} steps after the change, {sum(step > later[0]['step'] for step in steps)} of them in the last "
              f"{len(later)} steps; idle {idle(drift[:CHANGE - 1]):.1f} % before it, {idle(soon):.1f} % in the 100 steps after the first and "
              f"{idle(later):.1f} % after those", flush=True)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--times", choices=("given", "measured", "both"), default="both")
wanted = parser.parse_args().times
for name, kind in (("given", GIVEN), ("measured", MEASURED)):
    if wanted in (name, "both"):
        with tempfile.TemporaryDirectory() as parent:
            measure(kind, pathlib.Path(parent))
