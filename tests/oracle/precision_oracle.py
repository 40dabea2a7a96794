#!/usr/bin/env python3
"""float16 against PyTorch: the sequence of loss scales and skipped steps is GradScaler's on one large batch, whoever of 1 to 4 ranks holds the sample that overflows; autocast and half parameters, with masters, end near the float32 run; without masters a run that goes wrong stops and says where."""
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from common import batches_of, configuration, onebatch, read_json_lines, relative_l2, report, scratch

PROGRAM = sys.argv[1]
SAMPLES, BATCH, STEPS, WIDTH, CLASSES, RATE, GROWTH = 64, 16, 24, 8, 4, 0.001, 3
CONFIG = configuration("""
[run]
max_steps = 24
name = "half"
[batch]
global_batch_size = 16
{micro}
[optimizer]
lr = 0.001
[precision]
compute = "float16"
parameters = "{parameters}"
master_weights = {masters}
{scale}
[simulate]
devices = [{{slowdown = 1.0}}, {{slowdown = 2.0}}, {{slowdown = 1.5}}, {{slowdown = 1.2}}]
""")


def make_model():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(WIDTH, CLASSES))


def make_data():
    generator = torch.Generator().manual_seed(3)
    x = 0.1 * torch.randn(SAMPLES, WIDTH, generator=generator)
    y = torch.randint(0, CLASSES, (SAMPLES,), generator=generator)
    # Surely wrong, so its part of a weight's gradient is 24 / 16 of the loss scale: beyond float16's 65504 at 65536, not at 32768.
    x[21] = torch.where(torch.arange(WIDTH) == 5, 24.0, 0.0)
    y[21] = make_model()[0].weight[:, 5].argmin()
    return {"x": x, "y": y}


def grad_scaler_run(data, batches, dtype):
    """PyTorch's own, on each large batch at once; in float32 without a scaler."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16, init_scale=65536.0, growth_interval=GROWTH)
    sequence = []
    for batch in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=dtype == torch.float16):
            outputs = model(data["x"][batch])
        scale = scaler.get_scale()
        scaler.scale(functional.cross_entropy(outputs.float(), data["y"][batch])).backward()
        scaler.step(optimizer)
        scaler.update()
        sequence.append((scale, scaler.get_scale() < scale))
    return sequence, model.state_dict()


def train(folder, ranks, micro, parameters="float32", masters="true", scale="loss_scale_growth_steps = 3", expect=(0,)):
    config = folder / "c.toml"
    config.write_text(CONFIG.format(folder=folder, micro=micro, parameters=parameters, masters=masters, scale=scale))
    return onebatch(PROGRAM, ranks, ["train", config, "--quiet"], expect)


def main():
    failures = 0
    data = make_data()
    for ranks, micro in ((1, "micro_batch_size = 16"), (1, "micro_batch_size = 5"), (2, "micro_batch_size = [9, 7]\ngradient_accumulation_steps = 1"), (3, "micro_batch_size = [1, 7, 2]"),
                         (4, "micro_batch_size = [5, 3, 4, 4]\ngradient_accumulation_steps = 1")):
        for parameters in ("float32", "float16"):
            with scratch() as folder:
                folder = pathlib.Path(folder)
                save_file(data, folder / "data.safetensors")
                torch.jit.script(make_model()).save(str(folder / "model.pt"))
                train(folder, ranks, micro, parameters)
                batches = batches_of(folder / "half")
                ours = [(line["loss_scale"], line["skipped"]) for line in read_json_lines(folder / "half" / "metrics.jsonl")]
                theirs, _ = grad_scaler_run(data, batches, torch.float16)
                _, full = grad_scaler_run(data, [batch for batch, (_, skipped) in zip(batches, ours) if not skipped], torch.float32)
                skips = sum(skipped for _, skipped in ours)
                what = f"{parameters} parameters, {ranks} rank(s), {micro.splitlines()[0]}"
                failures += report(ours == theirs and 2 <= skips < STEPS // 2, f"{what}: {skips} of {STEPS} steps skipped, each scale and skip GradScaler's", f"{ours}\n{theirs}")
                saved, start = next((folder / "half" / "checkpoints").glob("step-*")), make_model().state_dict()
                weights, begun = load_file(saved / "model.safetensors"), start
                if parameters == "float16":
                    masters = load_file(saved / "optimizer.safetensors")
                    failures += report(all(torch.equal(weights[k], masters["master." + k].half()) for k in start), f"{what}: the halves are the masters' copies")
                    weights, begun = {k: masters["master." + k] for k in start}, {k: start[k].half().float() for k in start}
                moved = relative_l2({k: weights[k] - begun[k] for k in start}, {k: full[k] - start[k] for k in start})
                limit = 0.002
                failures += report(moved <= limit, f"{what}: what the steps add to the weights is within {moved:.1e} of float32's (at most {limit})")
    with scratch() as folder:
        folder = pathlib.Path(folder)
        save_file({"x": 1e6 * data["x"], "y": data["y"]}, folder / "data.safetensors")
        torch.jit.script(make_model()).save(str(folder / "model.pt"))
        out = train(folder, 2, "", "float16", "false", 'loss_scale = 1', expect=(1,))
        failures += report("not finite" in out and "aten::linear" in out and "precision.master_weights = true" in out, "without masters, data beyond float16: stops and names the layer")
    return failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
