#!/usr/bin/env python3
"""How data workers do: reading alone by their number (loader_bench), and how long a step takes and waits for data beside training, for a small and a larger model.

Runs of one case take turns, so that what else the machine does meets all of them. loader.py [--program build/onebatch] [--rounds 5] [--steps 200]"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORKERS = ('"auto"', "0", "1", "2")
AUGMENTED = "[data.augment]\ncrop_padding = 4\nhorizontal_flip = true\n"
CASES = {
    "MLP 64-64-48-10 on digits, 257": ('kind = "idx"\npath = "data/digits"\n', '[model]\nkind = "mlp"\nhidden = [64, 48]\n', 257),
    "MLP 3072-512-10 on images [3, 32, 32] with augmentation, 256": (f'kind = "synthetic"\nshape = [3, 32, 32]\nsize = 5000\n{AUGMENTED}', '[model]\nkind = "mlp"\nhidden = [512]\n', 256),
    "ResNet-20 on images [3, 32, 32] with augmentation, 64": (f'kind = "synthetic"\nshape = [3, 32, 32]\nsize = 5000\n{AUGMENTED}', '[model]\nkind = "resnet"\ndepth = 20\nstem = "cifar"\n', 64),
}


def configuration(folder, data, model, batch, steps):
    path = pathlib.Path(folder) / "c.toml"
    path.write_text(f'[run]\nmax_steps = {steps}\noutput_dir = "{folder}/runs"\n[batch]\nglobal_batch_size = {batch}\nmicro_batch_size = {batch}\n[data]\n{data}{model}[optimizer]\nkind = "sgd"\n'
                    "[probe]\nsteps_per_trial = 1\n[verify]\nat_start = false\n")
    return path


def trained(program, config, workers, number):
    """Median step and median wait, in ms, of all but the first fifth."""
    name = f"r{number}"
    subprocess.run([program, "train", config, "--quiet", "--set", f"data.workers={workers}", "--set", f'run.name="{name}"'], cwd=ROOT, check=True, timeout=3600, capture_output=True)
    lines = [json.loads(line) for line in (config.parent / "runs" / name / "metrics.jsonl").read_text().splitlines()]
    lines = lines[len(lines) // 5 :]
    return [1e3 * statistics.median(line["step_seconds"] for line in lines), 1e3 * statistics.median(line["data_wait_seconds"][0] for line in lines)]


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--program", default=str(ROOT / "build/onebatch"))
parser.add_argument("--bench", default=str(ROOT / "build/bench/loader_bench"))
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--steps", type=int, default=200)
arguments = parser.parse_args()

print(subprocess.run([arguments.bench], check=True, text=True, capture_output=True).stdout)
print("| case | data.workers | step, ms | over 0 | waiting for data, ms | of the step |\n| --- | --- | --- | --- | --- | --- |")
for case, (data, model, batch) in CASES.items():
    found = {workers: [] for workers in WORKERS}
    with tempfile.TemporaryDirectory() as folder:
        config = configuration(folder, data, model, batch, arguments.steps if "MLP" in case else max(20, arguments.steps // 5))
        for turn in range(arguments.rounds):
            for place in range(len(WORKERS)):
                workers = WORKERS[(turn + place) % len(WORKERS)]
                found[workers].append(trained(arguments.program, config, workers, f"{turn}-{place}"))
    base = [step for step, _ in found["0"]]
    for workers, runs in found.items():
        step, wait = statistics.median(run[0] for run in runs), statistics.median(run[1] for run in runs)
        ratio = statistics.median(run[0] / other for run, other in zip(runs, base))
        print(f"| {case} | {workers} | {step:.3f} | {ratio:.3f} | {wait:.3f} | {100 * wait / step:.1f} % |", flush=True)
