#!/usr/bin/env python3
"""Buffers against PyTorch: local BatchNorm's statistics averaged by share, a causal mask of -inf with ranks that have no samples, under training, checkpoint, validation, eval and resume."""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from torch import nn

from common import batches_of, configuration, digits, onebatch, read_idx, relative_l2, report, scratch

PROGRAM = sys.argv[1]
SECONDS = {1: (0.05,), 2: (0.08, 0.15), 3: (0.08, 0.15, 0.5), 4: (0.15, 0.08, 0.5, 0.5)}  # of a micro-batch of 8, by rank: what is too slow gets none
CONFIG = configuration("""
[run]
max_steps = {steps}
[batch]
global_batch_size = 24
micro_batch_size = 8
replan = "never"
[data]
kind = "idx"
path = "data/digits"
[data.validation]
kind = "idx"
[optimizer]
lr = 0.05
[batch_norm]
mode = "{mode}"
[checkpoint]
resume = "auto"
[probe]
max_trials = 3
cache = false
[simulate]
devices = [{devices}]
""")


class Causal(nn.Module):
    """Rows of an image attend to the rows before them; a BatchNorm before and after."""

    def __init__(self):
        super().__init__()
        self.before, self.key, self.query, self.value = nn.BatchNorm1d(8), nn.Linear(8, 6), nn.Linear(8, 6), nn.Linear(8, 8)
        self.after, self.head = nn.BatchNorm1d(64), nn.Linear(64, 10)
        self.register_buffer("mask", torch.full((8, 8), float("-inf")).triu(1))

    def forward(self, x):
        x = self.before(x.squeeze(1))
        attention = torch.softmax(self.query(x) @ self.key(x).transpose(1, 2) + self.mask, -1)
        return self.head(self.after((attention @ self.value(x)).flatten(1)))


def make():
    torch.manual_seed(3)
    return Causal()


def of_each_rank(batches, plan):
    """The buffers of every rank after so many steps: each has trained on its own micro-batches, all with the common weights."""
    models = [make().double().train() for _ in plan["ranks"]]
    images, labels = digits(torch.float64)
    for indices in batches:
        begin = 0
        gradients = None
        for rank, model in zip(plan["ranks"], models):
            model.zero_grad()
            for size, count in rank["micro_batches"]:
                for _ in range(count):
                    part = indices[begin:begin + size]
                    begin += size
                    nn.functional.cross_entropy(model(images[part]), labels[part], reduction="sum").div(len(indices)).backward()
            own = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
            gradients = own if gradients is None else [a + b for a, b in zip(gradients, own)]
        with torch.no_grad():
            for model in models:
                for parameter, gradient in zip(model.parameters(), gradients):
                    parameter -= 0.05 * gradient
    return models


def averaged(models, plan):
    total = sum(rank["samples"] for rank in plan["ranks"])
    state = models[0].state_dict()
    for name, _ in models[0].named_buffers():
        if name.endswith(("running_mean", "running_var")):
            state[name] = sum(model.state_dict()[name] * (rank["samples"] / total) for model, rank in zip(models, plan["ranks"]) if rank["samples"] > 0)
        elif name.endswith("num_batches_tracked"):
            state[name] = max(model.state_dict()[name] for model in models)
    return state


def validation_loss(state):
    model = make().double()
    model.load_state_dict(state, strict=True)
    images = torch.tensor(read_idx("t10k-images-idx3-ubyte").copy()).double().unsqueeze(1) / 16
    labels = torch.tensor(read_idx("t10k-labels-idx1-ubyte").astype("int64"))
    with torch.no_grad():
        return nn.functional.cross_entropy(model.eval()(images), labels).item()


def run_case(ranks, mode, stops):
    with scratch() as folder:
        folder = pathlib.Path(folder)
        torch.jit.script(make()).save(str(folder / "model.pt"))
        config = folder / "c.toml"
        for steps in stops:
            config.write_text(CONFIG.format(folder=folder, mode=mode, steps=steps, devices=", ".join(f"{{step_seconds = [[8, {seconds}]]}}" for seconds in SECONDS[ranks])))
            onebatch(PROGRAM, ranks, ["train", config, "--quiet", "--json", folder / "result.json"])
        onebatch(PROGRAM, ranks, ["eval", config, "--checkpoint", folder / "run", "--quiet", "--json", folder / "eval.json"])
        plan = json.loads((folder / "run" / "plan.json").read_text())
        batches = batches_of(folder / "run")
        ours = load_file(folder / "run" / "checkpoints" / "latest" / "model.safetensors")
        told = [json.loads((folder / name).read_text())["validation_loss"] for name in ("result.json", "eval.json")]
        told = [float("nan") if loss is None else loss for loss in told]
    shares = [rank["samples"] for rank in plan["ranks"]]
    failures = report((0 in shares) == (ranks > 2) and sum(share > 0 for share in shares) == min(ranks, 2), f"{ranks} rank(s): shares {shares}")
    models = of_each_rank(batches, plan if mode == "local" else {"ranks": [{"samples": 24, "micro_batches": [[24, 1]]}]})
    expected = averaged(models, plan) if mode == "local" else models[0].state_dict()
    failures += report(torch.equal(ours["mask"], make().mask.double()), "    the mask is what it was")
    finite = {name: tensor for name, tensor in expected.items() if name != "mask"}
    error = relative_l2({name: ours[name] for name in finite}, finite)
    losses = [abs(loss - validation_loss(expected)) for loss in told]
    return failures + report(error <= 1e-12 and max(losses) <= 1e-12, f"    {mode}, {stops} steps: weights and statistics {error:.1e}, validation {losses[0]:.1e}, eval {losses[1]:.1e}")


def ended_by_a_gradient():
    """A step too far, after which numbers are no longer finite: the infinities of the mask were meant, and the weights are saved."""
    with scratch() as folder:
        folder = pathlib.Path(folder)
        torch.jit.script(make()).save(str(folder / "model.pt"))
        config = folder / "c.toml"
        config.write_text(CONFIG.format(folder=folder, mode="local", steps=8, devices="{}"))
        said = onebatch(PROGRAM, 1, ["train", config, "--set", "optimizer.lr=1e300"], expect=(1,))
        saved = (folder / "run" / "checkpoints" / "step-1").exists()
    return report(saved and "the weights are those of step 1, saved" in said, "a gradient that is not finite ends it: saved with its mask")


def main():
    failures = ended_by_a_gradient()
    for ranks in (1, 2, 3, 4):
        failures += run_case(ranks, "local", (3,))
    failures += run_case(3, "exact", (3,))
    failures += run_case(2, "local", (2, 4))
    return failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
