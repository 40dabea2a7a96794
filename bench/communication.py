#!/usr/bin/env python3
"""What communication costs on the CPU: bytes per step against accumulation, what of it is exposed, two ranks of one thread against twice one rank. Interleaved, medians."""
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "build" / "onebatch"
ROUNDS = 5
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
MLP = 'shape = [784]\n[model]\nkind = "mlp"\nhidden = [1024, 512]\n'
RESNET = 'shape = [3, 32, 32]\n[model]\nkind = "resnet"\ndepth = 18\nstem = "cifar"\n'


def train(folder, model, ranks, micro_batch, accumulation, steps):
    config = pathlib.Path(folder) / "c.toml"
    batch = micro_batch * accumulation * ranks
    config.write_text(f"""[run]
max_steps = {steps}
output_dir = "{folder}/runs"
[batch]
global_batch_size = {batch}
micro_batch_size = {micro_batch}
gradient_accumulation_steps = {accumulation}
[checkpoint]
resume = "never"
[probe]
cache = false
steps_per_trial = 1
[data]
kind = "synthetic"
size = {batch * 2}
{model}""")
    command = [str(PROGRAM), "train", str(config), "--quiet", "--json", f"{folder}/r.json"]
    if ranks > 1:
        command = ["mpirun", "--bind-to", "none", "--oversubscribe", "-np", str(ranks), *command]
    subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, check=True, capture_output=True, timeout=900)
    result = json.loads(pathlib.Path(folder, "r.json").read_text())
    lines = pathlib.Path(result["run_dir"], "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines[1:]]
    exposed = statistics.median(step["exposed_comm_seconds"] / step["step_seconds"] for step in steps)
    return batch / statistics.median(step["step_seconds"] for step in steps), exposed, result["reduced_bytes_per_step"]


with tempfile.TemporaryDirectory() as folder:
    one, sixteen = (train(folder, MLP, 2, 16, accumulation, 3)[2] for accumulation in (1, 16))
    print(f"bytes per optimizer step, 16 accumulation steps over 1: {sixteen / one:.3f} ({one} bytes)", flush=True)
    exposed = [train(folder, RESNET, 2, 32, 4, 3)[1] for _ in range(3)]
    print(f"ResNet-18 CIFAR, 2 ranks, 4 accumulation steps of 32: exposed {100 * statistics.median(exposed):.2f} % of the step", flush=True)
    for name, model, size, steps in (("MLP 784-1024-512-10 at 256", MLP, 256, 60), ("ResNet-18 CIFAR at 32", RESNET, 32, 4)):
        ratios = []
        for _ in range(ROUNDS):
            alone = train(folder, model, 1, size, 1, steps)[0]
            both = train(folder, model, 2, size, 1, steps)[0]
            ratios.append(both / (2 * alone))
        print(f"{name}: 2 ranks of one thread over 2 times 1 rank: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})", flush=True)
