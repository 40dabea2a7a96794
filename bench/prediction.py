#!/usr/bin/env python3
"""The predicted step time against the measured median, for unlike simulated devices on 2 ranks: models, speeds and batches of several kinds, each run with a probe of
its own. A case's figure is the median of its runs, which take turns with those of the other cases. First by given times, as a GPU has them whatever the CPU's cores
are slowed by, then by what the CPU takes. Beside it what nobody can foretell: how far a run's halves differ."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
MLP = '[data]\nkind = "synthetic"\nshape = [512]\nsize = 2048\n[model]\nkind = "mlp"\nhidden = [1024, 1024]\n'
RESNET = '[data]\nkind = "synthetic"\nshape = [3, 32, 32]\nsize = 2048\n[model]\nkind = "resnet"\ndepth = 8\nstem = "cifar"\n'
# Seconds of a sample on a device of given times: more than twice what a slow core needs.
SAMPLE = {MLP: 0.3e-3, RESNET: 4e-3}
CASES = [(name, model, batch, steps, slowdowns)
         for name, model, batch, steps in (("MLP", MLP, 256, 150), ("MLP", MLP, 1000, 60), ("ResNet-8", RESNET, 64, 40), ("ResNet-8", RESNET, 200, 20))
         for slowdowns in ((1.0, 2.5), (1.5, 2.0), (1.0, 4.0))]
CONFIG = """
[run]
max_steps = {steps}
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
devices = [{first}, {second}]
"""


def simulated(slowdown, sample_seconds, launch, flat):
    """A device of 96 MiB; with a sample's seconds given one that does better the more samples it has, and saves nothing below `flat` of them."""
    sizes = [1] + [flat * 2 ** k for k in range(9)]
    points = [[size, sample_seconds * (max(size, flat) + launch * max(size, flat) ** 0.5)] for size in sizes] if sample_seconds else []
    return f'{{memory = "96MiB", slowdown = {slowdown}' + (f", step_seconds = {points}" if points else "") + "}"


def train(folder, model, batch, steps, devices):
    """Predicted over measured step time, and the first half's over the second's."""
    config = folder / "c.toml"
    config.write_text(CONFIG.format(folder=folder, batch=batch, model=model, steps=steps, first=devices[0], second=devices[1]))
    subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", str(ROOT / "build" / "onebatch"), "train", str(config), "--quiet",
                    "--json", str(folder / "r.json")], env=ENVIRONMENT, check=True, capture_output=True)
    result = json.loads((folder / "r.json").read_text())
    seconds = [json.loads(line)["step_seconds"] for line in (pathlib.Path(result["run_dir"]) / "metrics.jsonl").read_text().splitlines()]
    halves = statistics.median(seconds[:steps // 2]) / statistics.median(seconds[steps // 2:])
    return result["predicted_step_seconds"] / result["step_seconds"]["median"], halves


def off(ratios):
    sizes = sorted(100 * abs(ratio - 1) for ratio in ratios)
    return f"off by {statistics.median(sizes):.1f} % (median), {sizes[min(len(sizes) - 1, int(0.95 * len(sizes)))]:.1f} % (95 %)"


def measure(given, rounds):
    print("Devices of given times:" if given else "Devices that take a multiple of what the CPU takes:", flush=True)
    ratios = {case: [] for case in range(len(CASES))}
    halves = []
    with tempfile.TemporaryDirectory() as name:
        for _ in range(rounds):
            for case, (label, model, batch, steps, (first, second)) in enumerate(CASES):
                sample = SAMPLE[model] if given else 0
                ratio, half = train(pathlib.Path(name), model, batch, steps // 2 if given else steps,
                                    (simulated(first, sample, launch=5, flat=6), simulated(second, sample, launch=2, flat=3)))
                ratios[case].append(ratio)
                halves.append(half)
                print(f"{label} batch {batch}, slowdowns {first} and {second}: predicted over measured {ratio:.3f}, first half over second {half:.3f}", flush=True)
    runs = [ratio for of_case in ratios.values() for ratio in of_case]
    cases = [statistics.median(of_case) for of_case in ratios.values()]
    print(f"{len(cases)} cases, {f'the median of {rounds} runs' if rounds > 1 else 'one run'} each: {off(cases)}; median ratio {statistics.median(cases):.3f}")
    print(f"{len(runs)} runs: {off(runs)}; a run's first half over its second: {off(halves)}")


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--times", choices=("given", "measured", "both"), default="both")
parser.add_argument("--rounds", type=int, help="1 with given times, 3 with measured ones")
arguments = parser.parse_args()
for kind in ("given", "measured"):
    if arguments.times in (kind, "both"):
        measure(kind == "given", arguments.rounds or (1 if kind == "given" else 3))
