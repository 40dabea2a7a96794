#!/usr/bin/env python3
"""Ten steps of AdamW with clipping, decay and a schedule on two uneven ranks against the same loop in PyTorch, which takes each batch at once: torchvision's ResNet-18 and
transformers' BERT. In float64 the weights are the loop's; in float32 they are as far from the truth as the loop's own are.

zoo_training.py PROGRAM

By hand, as zoo.py: it needs torchvision and transformers.
"""
import json
import math
import os
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

from common import ROOT, batches_of, configuration, onebatch, relative_l2, report, scratch

sys.path.insert(0, str(ROOT / "python"))
os.environ["HF_HUB_OFFLINE"] = "1"

from zoo import InFloat64, logits_of, without_dropout  # noqa: E402
from zoo_models import CLASSES, MODELS  # noqa: E402

import onebatch as package  # noqa: E402

PROGRAM = sys.argv[1]
STEPS, WARMUP, LEAST, RATE, DECAY, NORM = 10, 3, 0.1, 2e-3, 0.1, 0.5
SAMPLES, BATCH = 36, 10
LIMIT, TIMES = 1e-12, 2.0  # of the update in float64; of the loop's own error in float32
CONFIG = configuration(f"""
[run]
max_steps = {STEPS}
name = "{{precision}}"
[batch]
global_batch_size = {BATCH}
micro_batch_size = [3, 2]
[data]
inputs = {{inputs}}
target = "y"
[model]
kind = "exported"
path = "{{folder}}/model.pt2"
[batch_norm]
mode = "exact"
[optimizer]
kind = "adamw"
lr = {RATE}
weight_decay = {DECAY}
max_grad_norm = {NORM}
[schedule]
kind = "cosine"
warmup_steps = {WARMUP}
final_lr_fraction = {LEAST}
[precision]
compute = "{{precision}}"
parameters = "{{precision}}"
""")


def rate(step):
    if step < WARMUP:
        return RATE * (step + 1) / WARMUP
    return RATE * (LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - 1 - WARMUP))))


def loop(model, start, inputs, targets, batches, dtype):
    """The weights and buffers after the steps."""
    model.load_state_dict(start)
    model = model.to(dtype).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    for step, batch in enumerate(batches):
        optimizer.zero_grad()
        given = {name: (tensor.to(dtype) if tensor.is_floating_point() else tensor)[batch] for name, tensor in inputs.items()}
        outputs = logits_of(model(**given) if len(given) > 1 else model(*given.values()))[0]
        torch.nn.functional.cross_entropy(outputs, targets[batch]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.step()
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def change(after, start):
    return {name: after[name].double() - start[name].double() for name in start if start[name].is_floating_point()}


def train(folder, inputs, precision):
    """The weights that the program came to, and its batches."""
    config = folder / "c.toml"
    config.write_text(CONFIG.format(folder=folder, inputs=json.dumps(list(inputs)), precision=precision))
    onebatch(PROGRAM, 2, ["train", config, "--quiet"])
    run = folder / precision
    return load_file(run / "checkpoints" / f"step-{STEPS}" / "model.safetensors"), batches_of(run)


def check(family, name):
    torch.manual_seed(5)
    make, data, dynamic = MODELS[family][name]
    model = without_dropout(make()).float()
    start = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    made, targets = data(SAMPLES), torch.randint(0, CLASSES, (SAMPLES,))
    inputs = made if isinstance(made, dict) else {f"x{i}": tensor for i, tensor in enumerate(made)}
    with scratch() as scratch_folder:
        folder = pathlib.Path(scratch_folder)
        package.export(model, data(4), folder / "model.pt2", dynamic=dynamic, check=False)
        save_file({**inputs, "y": targets}, folder / "data.safetensors")
        double, batches = train(folder, inputs, "float64")
        single, _ = train(folder, inputs, "float32")
    with InFloat64():
        truth = loop(model, start, inputs, targets, batches, torch.float64)
    own = loop(model.float(), start, inputs, targets, batches, torch.float32)
    true_change = change(truth, start)
    error = relative_l2(change(double, start), true_change)
    failures = report(error <= LIMIT and not set(start) - set(double), f"{name}, float64, 2 ranks: update of {STEPS} steps off by {error:.1e} (at most {LIMIT:.0e})")
    ours, loops = relative_l2(change(single, start), true_change), relative_l2(change(own, start), true_change)
    return failures + report(ours <= TIMES * loops, f"{name}, float32, 2 ranks: off by {ours:.1e}, the loop in PyTorch by {loops:.1e} (at most {TIMES:g} times that)")


if __name__ == "__main__":
    sys.exit(1 if sum(check(family, name) for family, name in (("torchvision", "resnet18"), ("transformers", "BERT"))) else 0)
