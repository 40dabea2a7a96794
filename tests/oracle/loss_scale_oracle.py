#!/usr/bin/env python3
"""float16's loss scale, exactly: in one micro-batch every scale and skip is GradScaler's on that batch, of any size, a short last one too; in several, on any ranks, PyTorch's own accumulation of the same micro-batches under GradScaler."""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from common import configuration, onebatch, read_json_lines, report, scratch

PROGRAM = sys.argv[1]
SAMPLES, STEPS, WIDTH, CLASSES, RATE = 72, 26, 12, 5, 0.002
CONFIG = configuration("""
[run]
max_steps = 26
name = "half"
[batch]
global_batch_size = {batch}
micro_batch_size = {micro}
[optimizer]
lr = 0.002
[precision]
compute = "float16"
parameters = "float32"
loss_scale_growth_steps = 2
[probe]
max_trials = 3
[simulate]
devices = [{{step_seconds = [[8, 0.02]]}}, {{step_seconds = [[8, 0.03]]}}, {{step_seconds = [[8, 0.04]]}}]
""")


def make_model(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, CLASSES))


def make_data(seed):
    """Samples of all sizes, so that one layer or another overflows at many a scale, in some batches."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(SAMPLES, WIDTH, generator=generator) * torch.exp(torch.randn(SAMPLES, 1, generator=generator))
    return {"x": x, "y": torch.randint(0, CLASSES, (SAMPLES,), generator=generator)}


def grad_scaler_loop(seed, data, steps):
    """Each step a list of micro-batches, whose gradients add up; the loss is the mean over all of them."""
    model = make_model(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=2)
    sequence = []
    for parts in steps:
        optimizer.zero_grad()
        scale, count = scaler.get_scale(), sum(map(len, parts))
        for part in parts:
            with torch.autocast("cpu", dtype=torch.float16):
                outputs = model(data["x"][part])
            scaler.scale(functional.cross_entropy(outputs.float(), data["y"][part], reduction="sum") / count).backward()
        scaler.step(optimizer)
        scaler.update()
        sequence.append((scale, scaler.get_scale() < scale))
    return sequence


def micro_batches(plan, indices):
    parts = []
    for rank in plan["ranks"]:
        for size, count in rank["micro_batches"]:
            for _ in range(count):
                parts.append(indices[:size])
                indices = indices[size:]
    assert not indices
    return parts


def run_case(seed, ranks, batch, micro):
    data = make_data(seed)
    with scratch() as folder:
        folder = pathlib.Path(folder)
        save_file(data, folder / "data.safetensors")
        torch.jit.script(make_model(seed)).save(str(folder / "model.pt"))
        (folder / "c.toml").write_text(CONFIG.format(folder=folder, batch=batch, micro=micro))
        onebatch(PROGRAM, ranks, ["train", folder / "c.toml", "--quiet"])
        plan = json.loads((folder / "half" / "plan.json").read_text())
        steps = [micro_batches(plan if len(line["indices"]) == batch else plan["last_batch"], line["indices"]) for line in read_json_lines(folder / "half" / "samples.jsonl")]
        ours = [(line["loss_scale"], line["skipped"]) for line in read_json_lines(folder / "half" / "metrics.jsonl")]
    theirs = grad_scaler_loop(seed, data, steps)
    skips, short, most = sum(skipped for _, skipped in ours), min(sum(map(len, parts)) for parts in steps), max(map(len, steps))
    assert (most == 1) == (micro == batch and ranks == 1), most
    good = ours == theirs and 2 <= skips < STEPS - 2
    return report(good, f"{ranks} rank(s), batches of {batch} and {short} in {most} micro-batch(es): {skips} of {STEPS} steps skipped", f"{ours}\n{theirs}")


def main():
    failures = 0
    for seed, batch in ((1, 24), (2, 16), (3, 21), (4, 50)):
        failures += run_case(seed, 1, batch, batch)
    for seed, ranks, batch, micro in ((5, 1, 32, 8), (6, 1, 21, 5), (7, 2, 24, 7), (8, 3, 30, "[3, 8, 5]")):
        failures += run_case(seed, ranks, batch, micro)
    return failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
