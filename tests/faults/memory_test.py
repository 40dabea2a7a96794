#!/usr/bin/env python3
"""The memory of one device halves in mid-run: the run goes on, with the same samples and, without batch statistics, the same losses.

memory_test.py PROGRAM (the one of faulty_rank.cpp)
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1")
CONFIG = """
[run]
max_steps = 8
output_dir = "{folder}/runs"
[batch]
global_batch_size = {batch}
[data]
kind = "synthetic"
size = 3000
{model}
[precision]
parameters = "float64"
compute = "float64"
[comm]
overlap = {overlap}
[probe]
cache = false
steps_per_trial = 1
[checkpoint]
resume = "never"
[log]
samples = true
[simulate]
devices = [{{memory = "{memory}"}}, {{memory = "{memory}"}}]
"""
MLP = 'shape = [96]\n[model]\nkind = "mlp"\nhidden = [96, 96, 96]\ndropout = 0.2'
RESNET = 'shape = [3, 16, 16]\n[model]\nkind = "resnet"\ndepth = 8\nstem = "cifar"'


def train(folder, name, fault, **settings):
    config = folder / f"{name}.toml"
    config.write_text(CONFIG.format(folder=folder, **settings))
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", str(PROGRAM), "train", str(config), "--json", str(folder / "r.json")]
    done = subprocess.run(command, env=dict(ENVIRONMENT, ONEBATCH_FAULT=fault), capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{name} returned {done.returncode}\n{done.stdout}{done.stderr}")
    result = json.loads((folder / "r.json").read_text())
    run = pathlib.Path(result["run_dir"])
    losses = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    samples = (run / "samples.jsonl").read_text()
    return losses, samples, result, done.stdout + done.stderr


def check(condition, what, output=""):
    if not condition:
        sys.exit(f"FAILED: {what}\n{output}")


with tempfile.TemporaryDirectory(prefix="onebatch-memory-") as name:
    folder = pathlib.Path(name)
    for overlap in ("false", "true"):
        settings = dict(batch=1500, model=MLP, memory="4MiB", overlap=overlap)
        losses, samples, result, _ = train(folder, f"clean-{overlap}", "-1 - 0 - -", **settings)
        check(result["out_of_memory_events"] == 0 and result["replans"] == 0, "nothing runs out of memory by itself", str(result))
        less, same, after, output = train(folder, f"less-{overlap}", "1 step 3 memory -", **settings)
        worst = max(abs(a - b) / abs(a) for a, b in zip(losses, less))
        check(len(less) == 8 and worst <= 1e-12, f"the losses are the same: {worst:.1e}", output)
        check(samples == same, "the samples are the same", output)
        check(after["out_of_memory_events"] >= 1 and after["replans"] >= 1, "it is counted", str(after))
        check("on rank 1" in output and "ran out of memory in a step" in output, "it is said", output)
        print(f"MLP, overlap {overlap}: losses within {worst:.1e}, {after['out_of_memory_events']} out of memory, {after['replans']} new plan(s)")
    settings = dict(batch=300, model=RESNET, memory="64MiB", overlap="false")
    losses, samples, _, _ = train(folder, "resnet", "-1 - 0 - -", **settings)
    less, same, after, output = train(folder, "resnet-less", "1 step 3 memory -", **settings)
    check(len(less) == 8 and samples == same and all(loss == loss and loss < 10 for loss in less), "BatchNorm: the run goes on", output)
    check(after["out_of_memory_events"] >= 1 and after["replans"] >= 1, "BatchNorm: the step is done again under a new plan", str(after) + output)
    print(f"ResNet-8: {after['out_of_memory_events']} out of memory, {after['replans']} new plan(s)")
