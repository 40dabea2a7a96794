#!/usr/bin/env python3
"""Weights after 20 steps of each optimizer against PyTorch's, which takes the same samples in one batch: short last batches, clipping and a schedule included."""
import math
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

from common import Mlp, batches_of, contiguous_state, digits, onebatch, relative_l2, report, scratch

PROGRAM = sys.argv[1]
STEPS = 20
CONFIG = """
[run]
max_steps = 20
name = "run"
output_dir = "{folder}"
[batch]
global_batch_size = 170
[data]
kind = "idx"
path = "data/digits"
[model]
kind = "mlp"
hidden = [64, 48]
weights = "{folder}/weights.safetensors"
[loss]
label_smoothing = 0.1
class_weights = [1, 2, 1, 0.5, 1, 1, 3, 1, 1, 1]
[optimizer]
{optimizer}
max_grad_norm = 0.5
[schedule]
kind = "cosine"
warmup_steps = 4
final_lr_fraction = 0.1
[precision]
compute = "{precision}"
parameters = "{precision}"
[probe]
steps_per_trial = 1
[log]
samples = true
[simulate]
devices = [{{slowdown = 1.0}}, {{slowdown = 2.0}}, {{slowdown = 1.5}}, {{slowdown = 1.2}}]
"""
OPTIMIZERS = {
    "adamw": ('kind = "adamw"\nlr = 0.01\nweight_decay = 0.1', lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1)),
    "adam": ('kind = "adam"\nlr = 0.01\nweight_decay = 0.1', lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1)),
    "sgd": ('kind = "sgd"\nlr = 0.1\nmomentum = 0.9\nnesterov = true\nweight_decay = 0.01',
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
}
TOLERANCE = {"float64": 1e-10, "float32": 1e-4}


def rate(step):
    if step < 4:
        return (step + 1) / 4
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (step - 4) / (STEPS - 5)))


def reference_weights(state, make_optimizer, batches, dtype):
    model = Mlp().to(dtype)
    model.load_state_dict({name: tensor.to(dtype) for name, tensor in state.items()})
    optimizer = make_optimizer(model.parameters())
    full = optimizer.param_groups[0]["lr"]
    weights = torch.tensor([1, 2, 1, 0.5, 1, 1, 3, 1, 1, 1], dtype=dtype)
    images, labels = digits(dtype)
    for step, indices in enumerate(batches):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[indices]), labels[indices], weight=weights, label_smoothing=0.1).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.param_groups[0]["lr"] = full * rate(step)
        optimizer.step()
    return model.state_dict()


def main():
    failures = 0
    torch.manual_seed(5)
    state = contiguous_state(Mlp())
    for name, (text, make_optimizer) in OPTIMIZERS.items():
        for precision, tolerance in TOLERANCE.items():
            for ranks in (1, 3):
                with scratch() as folder:
                    folder = pathlib.Path(folder)
                    save_file(state, folder / "weights.safetensors")
                    config = folder / "c.toml"
                    config.write_text(CONFIG.format(folder=folder, optimizer=text, precision=precision))
                    onebatch(PROGRAM, ranks, ["train", config, "--quiet"])
                    batches = batches_of(folder / "run")
                    assert [len(batch) for batch in batches[:9]] == [170] * 8 + [140], "the last batch of an epoch is short"
                    ours = load_file(folder / "run" / "checkpoints" / "latest" / "model.safetensors")
                    error = relative_l2(ours, reference_weights(state, make_optimizer, batches, getattr(torch, precision)))
                    good = error <= tolerance
                    failures += report(good, f"{name} {precision} {ranks} rank(s): relative L2 of the weights {error:.2e} (at most {tolerance:.0e})")
    return failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
