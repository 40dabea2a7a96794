#!/usr/bin/env python3
"""Exact BatchNorm at the edges, against PyTorch's one batch: micro-batches of one sample, whose one value per channel PyTorch's modules refuse; a whole batch of one value, which is refused here too; data whose mean is 10,000 deviations, in float32."""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from common import batches_of, configuration, onebatch, relative_l2, report, scratch

PROGRAM = sys.argv[1]
FEATURES, CLASSES, STEPS = 6, 4, 3
CONFIG = configuration("""
[run]
max_steps = {steps}
deterministic = {deterministic}
[batch]
global_batch_size = {batch}
micro_batch_size = {micro}
{more}
[optimizer]
lr = 0.05
[batch_norm]
mode = "{mode}"
[precision]
compute = "{precision}"
parameters = "{precision}"
[probe]
max_trials = 3
""")


class Small(nn.Module):
    """BatchNorms over features, and over a map of one pixel."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(FEATURES, 8), nn.BatchNorm1d(8)
        self.conv, self.norm2 = nn.Conv2d(8, 5, 1), nn.BatchNorm2d(5, momentum=0.3)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(self.norm2(self.conv(x.view(x.size(0), 8, 1, 1))))
        return self.head(x.flatten(1))


class FarFromZero(nn.Module):
    """The data themselves are normalised."""

    def __init__(self):
        super().__init__()
        self.norm, self.first, self.again, self.head = nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.head(torch.tanh(self.again(self.first(self.norm(x)))))


def make(kind, seed=1):
    torch.manual_seed(seed)
    return kind()


def data_of(size, offset=0.0, seed=2):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, FEATURES, generator=generator, dtype=torch.float64) + offset * torch.linspace(-1, 1, FEATURES, dtype=torch.float64)
    return {"x": x.float(), "y": torch.randint(0, CLASSES, (size,), generator=generator)}


def write(folder, model, data, how="script", **settings):
    save_file(data, folder / "data.safetensors")
    if how == "trace":
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        traced = torch.jit.trace(model.train(), data["x"][:4], check_trace=False)
        traced.load_state_dict(state)
        traced.save(str(folder / "model.pt"))
    else:
        torch.jit.script(model.train()).save(str(folder / "model.pt"))
    values = {"steps": STEPS, "deterministic": "false", "batch": 11, "micro": 2, "more": "", "mode": "exact", "precision": "float64", **settings}
    (folder / "c.toml").write_text(CONFIG.format(folder=folder, **values))
    return folder / "c.toml"


def plain_loop(model, data, batches):
    model = model.double().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for indices in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data["x"][indices].double()), data["y"][indices]).backward()
        optimizer.step()
    return {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}


def one_sample_at_a_time(ranks, how="script", **settings):
    data = data_of(50)
    with scratch() as folder:
        folder = pathlib.Path(folder)
        config = write(folder, make(Small), data, how, **settings)
        onebatch(PROGRAM, ranks, ["train", config, "--quiet"])
        batches = batches_of(folder / "run")
        sizes = {size for rank in json.loads((folder / "run" / "plan.json").read_text())["ranks"] for size, _ in rank["micro_batches"]}
        ours = load_file(folder / "run" / "checkpoints" / "latest" / "model.safetensors")
    expected = plain_loop(make(Small), data, batches)
    error = relative_l2({name: ours[name] for name in expected}, expected)
    return report(error <= 1e-12 and 1 in sizes, f"{how} {ranks} rank(s) {settings or ''}: micro-batches of {sorted(sizes)}, weights and statistics {error:.1e}")


def refused(ranks, words, size=50, **settings):
    with scratch() as folder:
        config = write(pathlib.Path(folder), make(Small), data_of(size), **settings)
        out = onebatch(PROGRAM, ranks, ["train", config, "--quiet"], expect=(2,))
        early = not (pathlib.Path(folder) / "run" / "metrics.jsonl").exists()
    good = all(word in out for word in words) and early
    return report(good, f"{size} samples, {settings}: refused before training" + ("" if good else f": {out}"))


def far_from_zero():
    """The whole gradient in float32, a batch at a time, against float64; PyTorch's own one batch in float32 beside it."""
    failures, ratios = 0, []
    for seed in range(6):
        data = data_of(48, 1e4, seed + 10)
        with scratch() as folder:
            folder = pathlib.Path(folder)
            config = write(folder, make(FarFromZero, seed), data, batch=48, micro="[7, 12]", precision="float32", steps=1)
            # What this is about is held against PyTorch below.
            onebatch(PROGRAM, 2, ["verify", config, "--save-gradient", folder / "g.safetensors", "--quiet"], expect=(0, 5))
            ours = load_file(folder / "g.safetensors")
        gradients = []
        for dtype in (torch.float64, torch.float32):
            model = make(FarFromZero, seed).to(dtype).train()
            nn.functional.cross_entropy(model(data["x"].to(dtype)), data["y"]).backward()
            gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
        error, own = relative_l2(ours, gradients[0]), relative_l2(gradients[1], gradients[0])
        ratios.append(error / own)
        failures += report(error <= max(2 * own, 2e-7), f"mean/deviation 10,000 in float32: {error:.1e}, PyTorch's one batch {own:.1e}")
    return failures


def main():
    failures = 0
    for ranks in (1, 2, 3):
        failures += one_sample_at_a_time(ranks)
    failures += one_sample_at_a_time(2, "trace")
    failures += one_sample_at_a_time(2, micro=1)
    failures += one_sample_at_a_time(2, deterministic='"bitwise"')
    failures += refused(1, ("one value per channel",), batch=1, micro=1)
    failures += refused(1, ("one value per channel in a micro-step", "a larger batch.micro_batch_size"), batch=8, micro=1, mode="sync")
    failures += refused(2, ("one value per channel", "batch.last_batch"), size=45)
    failures += far_from_zero()
    return failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
