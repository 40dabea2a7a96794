#!/usr/bin/env python3
"""Losses over outputs of many shapes against PyTorch in one batch: squared errors with weights, classes second, padded sequences whose padding counts; and shapes that cannot be trained, refused by name."""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from common import batches_of, configuration, onebatch, relative_l2, report, scratch

PROGRAM = sys.argv[1]
SAMPLES, LONGEST, WIDTH, CLASSES, BATCH, STEPS, RATE = 22, 9, 5, 4, 8, 3, 0.05  # the third batch holds 6
CONFIG = configuration("""
[run]
epochs = 1
seed = 3
[batch]
global_batch_size = 8
micro_batch_size = {micro}
[data]
{data}
[data.validation]
path = "{folder}/validation.safetensors"
[loss]
{loss}
[optimizer]
lr = 0.05
[batch_norm]
mode = "{norm}"
[simulate]
devices = [{{slowdown = 1.0}}, {{slowdown = 1.9}}, {{slowdown = 1.3}}]
""")


class PerPosition(nn.Module):
    """[N, T, 5] to a few numbers for every position: classes last, or second."""

    def __init__(self, outputs: int, second: bool = False, norm: bool = False):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 6), nn.Linear(6, outputs)
        self.norm: nn.Module = nn.BatchNorm1d(6) if norm else nn.Identity()
        self.second = second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x).transpose(1, 2)).transpose(1, 2)
        y = self.last(x.tanh())
        return y.transpose(1, 2) if self.second else y


class OnePerPosition(PerPosition):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).tanh()).squeeze(-1)


class Flattened(PerPosition):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).tanh()).flatten(0, 1)


class MeanOfPositions(PerPosition):
    """Its padding is a part of the mean."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).tanh().mean(1))


class Sequences(nn.Module):
    """Dropout of attention, once in PyTorch's own call, once by hand."""

    def __init__(self, p: float):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 6), nn.Linear(6, CLASSES)
        self.drop = nn.Dropout(p)
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.drop(self.first(x).tanh().transpose(1, 2)).transpose(1, 2)
        h = h + functional.scaled_dot_product_attention(h, h, h, dropout_p=self.p, is_causal=True)
        scores = (h @ h.transpose(1, 2)).unsqueeze(1)
        allowed = torch.ones(scores.size(-1), scores.size(-1), dtype=torch.bool, device=x.device).tril()
        weights = self.drop(scores.masked_fill(~allowed, float("-inf")).softmax(-1))
        return self.last(h + (weights @ h.unsqueeze(1)).squeeze(1))


class LossAlone(PerPosition):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(self.last(self.first(x).tanh()), y)


def make_data(seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, LONGEST + 1, (SAMPLES,), generator=generator)
    lengths[:4] = torch.tensor([CLASSES, LONGEST, 1, CLASSES])
    inside = torch.arange(LONGEST) < lengths.unsqueeze(1)
    labels = torch.randint(0, CLASSES, (SAMPLES, LONGEST), generator=generator)
    labels[0, 0] = CLASSES - 1
    numbers = lambda *shape: torch.randn(SAMPLES, *shape, generator=generator, dtype=torch.float64)
    return {
        "x": numbers(LONGEST, WIDTH) * inside.unsqueeze(-1),
        "lengths": lengths,
        "labels": torch.where(inside, labels, -100),
        "label": labels[:, 0].clone(),
        "narrow": torch.randint(0, CLASSES, (SAMPLES, CLASSES), generator=generator),
        "values": numbers(LONGEST, 3) * inside.unsqueeze(-1),
        "positions": numbers(LONGEST),
        "one": numbers(),
        "weights": torch.rand(SAMPLES, LONGEST, generator=generator, dtype=torch.float64) + 0.1,
        "soft": torch.rand(SAMPLES, LONGEST, CLASSES, generator=generator, dtype=torch.float64).softmax(-1),
    }


def batch_of(data, rows, cut):
    part = {name: tensor[rows] for name, tensor in data.items()}
    if cut:
        longest = int(part["lengths"].max())
        part = {name: tensor[:, :longest] if tensor.dim() > 1 and tensor.size(1) == LONGEST else tensor for name, tensor in part.items()}
    return part


def mean_loss(case, model, part):
    outputs, target = model(part["x"]), part[case["target"]]
    if case.get("loss", "") != 'kind = "mse"':
        if case.get("second"):
            return functional.cross_entropy(outputs, target)
        return functional.cross_entropy(outputs.flatten(0, -2), target.flatten())
    return functional.mse_loss(outputs, target, weight=part["weights"] if case.get("weighted") else None)


def run(folder, case, model, ranks, micro, code=0, data=None):
    keys = f'inputs = ["x"]\ntarget = "{case["target"]}"\n' + ('lengths = "lengths"\n' if case.get("lengths") else "") + ('weights = "weights"\n' if case.get("weighted") else "")
    save_file(data or make_data(11), folder / "data.safetensors")
    save_file(data or make_data(12), folder / "validation.safetensors")
    torch.jit.script(model).save(str(folder / "model.pt"))
    config = folder / "c.toml"
    config.write_text(CONFIG.format(folder=folder, micro=micro, data=keys, loss=case.get("loss", ""), norm=case.get("norm", "local")))
    return onebatch(PROGRAM, ranks, ["train", config, "--json", folder / "train.json"], expect=(code,))


def weights_of(folder):
    return load_file(next((folder / "run" / "checkpoints").glob("step-*")) / "model.safetensors")


def against_pytorch(case, ranks, micro):
    torch.manual_seed(5)
    model = case["model"]().double()
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with scratch() as folder:
        folder = pathlib.Path(folder)
        run(folder, case, model, ranks, micro)
        batches = batches_of(folder / "run")
        assert [len(batch) for batch in batches] == [BATCH, BATCH, SAMPLES - 2 * BATCH]
        ours, result = weights_of(folder), json.loads((folder / "train.json").read_text())
    data, optimizer = make_data(11), torch.optim.SGD(model.parameters(), RATE)
    for batch in batches:
        optimizer.zero_grad()
        mean_loss(case, model.train(), batch_of(data, batch, case.get("lengths"))).backward()
        optimizer.step()
    moved = lambda state: {name: state[name] - start[name] for name in start if start[name].is_floating_point()}
    error = relative_l2(moved(ours), moved(model.state_dict()))
    with torch.no_grad():
        loss = mean_loss(case, model.eval(), batch_of(make_data(12), range(SAMPLES), case.get("lengths"))).item()
    validation = abs(result["validation_loss"] / loss - 1)
    good = error <= 1e-13 and validation <= 1e-13
    return report(good, f"{case['name']}, {ranks} rank(s), micro_batch_size {micro}: what {STEPS} steps add to the weights, relative L2 {error:.1e}; validation loss {validation:.1e} (at most 1e-13)")


def whatever_the_plan(case):
    """No PyTorch draws these masks: the whole batch at once and each sample alone are one run."""
    states = []
    for micro in (BATCH, 1):
        torch.manual_seed(5)
        with scratch() as folder:
            folder = pathlib.Path(folder)
            run(folder, case, case["model"]().double(), 1, micro)
            states.append(weights_of(folder))
    torch.manual_seed(5)
    start = case["model"]().double().state_dict()
    error = relative_l2(*({name: state[name] - start[name] for name in start} for state in states))
    return report(error <= 1e-12, f"{case['name']}: one by one against one batch, relative L2 {error:.1e} (at most 1e-12)")


def refused(case, words):
    with scratch() as folder:
        said = run(pathlib.Path(folder), case, case["model"](), 2, '"auto"', code=2, data=case.get("data"))
    missing = [word for word in words if word not in said]
    return report(not missing, f"{case['name']}: refused by name", f"without {missing}:\n{said}")


def main():
    mse = 'kind = "mse"'
    trained = [
        {"name": "squared errors with weights", "model": lambda: OnePerPosition(1), "target": "positions", "loss": mse, "weighted": True},
        {"name": "squared errors of padded sequences", "model": lambda: PerPosition(3), "target": "values", "loss": mse, "lengths": True},
        {"name": "classes second, as many positions as classes", "model": lambda: PerPosition(CLASSES, second=True), "target": "labels", "second": True, "lengths": True},
        {"name": "exact BatchNorm over padding", "model": lambda: PerPosition(CLASSES, norm=True), "target": "labels", "lengths": True, "norm": "exact"},
        {"name": "a mean over padding", "model": lambda: MeanOfPositions(CLASSES), "target": "label", "lengths": True},
        {"name": "a row per label, as many positions as classes", "model": lambda: Flattened(CLASSES), "target": "labels", "lengths": True},
    ]
    failures = sum(against_pytorch(case, ranks, micro) for case in trained for ranks, micro in ((1, 1), (2, "[3, 5]"), (3, "[1, 2, 5]")))
    failures += whatever_the_plan({"name": "dropout of padded sequences", "model": lambda: Sequences(0.3), "target": "labels", "lengths": True})
    narrow = make_data(11)
    narrow["x"] = narrow["x"][:, :CLASSES].contiguous()
    for case, words in (
            ({"name": "one output for a target without its dimension", "model": lambda: MeanOfPositions(1), "target": "one", "loss": mse},
             ["[2, 1]", "targets [2]", "unsqueeze(1)"]),
            ({"name": "as many classes as positions", "model": lambda: PerPosition(CLASSES, second=True), "target": "narrow", "data": narrow}, ["[2, 4, 4]", "targets [2, 4]", 'loss.class_dim = "last"']),
            ({"name": "soft targets", "model": lambda: PerPosition(CLASSES), "target": "soft"}, ['data.target "soft"', "floating-point", 'loss.kind = "mse"']),
            ({"name": "a loss without its weight", "model": lambda: LossAlone(3), "target": "values", "loss": 'kind = "model"'}, ["one tensor []", "two scalars", "(loss.sum(), weight)"])):
        failures += refused(case, words)
    return failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
