#!/usr/bin/env python3
"""Tensors that are shared, small, complex or not persistent: trained as PyTorch does, and loaded again in Python with strict=True, or refused by name."""
import copy
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from archives import Report, Trial, archive, sgd
from common import relative_l2, scratch

PROGRAM = sys.argv[1]
SAMPLES, WORDS, LENGTH, WIDTH = 18, 11, 6, 8


class Tied(nn.Module):
    """A language model in small: embedding and head are one weight; one block stands under two names."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Tanh())
        self.again = self.block
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("positions", torch.arange(LENGTH), persistent=False)
        self.register_buffer("scale", torch.full((WIDTH,), 0.5))
        self.register_buffer("spread_out", torch.arange(3.0).expand(4, 3), persistent=False)

    def forward(self, x):
        y = self.words(x) * self.scale + self.places(self.positions) + self.spread_out.sum() * 0.01
        y = self.again(self.block(y))
        return self.head(y)


class SharedNorm(nn.Module):
    """One BatchNorm called twice, which averages over all batches; and under a second name."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS)
        self.norm = nn.BatchNorm1d(WIDTH, momentum=None)
        self.same = self.norm

    def forward(self, x):
        return self.head(self.same(self.second(self.norm(self.first(x)).relu())))


class SmallTypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, WORDS)
        for kind in (torch.int8, torch.int16, torch.int32, torch.uint8, torch.bool, torch.float16, torch.bfloat16, torch.float64):
            self.register_buffer(str(kind).split(".")[1] + "_buffer", (torch.arange(WIDTH) % 2).to(kind))

        self.register_buffer("start", torch.tensor([16777217.0], dtype=torch.float64))  # which float32 does not hold

    def forward(self, x):
        late = (self.start - 16777216).float()
        return self.head(x * late * (self.int8_buffer + self.int16_buffer + self.uint8_buffer))


class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        return self.head((~x).to(self.head.weight.dtype))


class Complex(nn.Module):
    def __init__(self, trained):
        super().__init__()
        self.head = nn.Linear(WIDTH, WORDS)
        factor = torch.randn(WIDTH, dtype=torch.complex64)
        if trained:
            self.factor = nn.Parameter(factor)
        else:
            self.register_buffer("factor", factor)

    def forward(self, x):
        return self.head(torch.abs(x * self.factor))


class AlsoBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, WORDS)
        self.register_buffer("again", self.head.weight)

    def forward(self, x):
        return self.head(x) * self.again.sum()


class Overlapping(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, WORDS)
        self.other = nn.Parameter(self.head.weight.detach().view(-1))

    def forward(self, x):
        return self.head(x) * self.other.sum()


def mean_over_tokens(outputs, targets):
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def tied(report, generator):
    inputs = torch.randint(0, WORDS, (SAMPLES, LENGTH), generator=generator)
    targets = torch.randint(0, WORDS, (SAMPLES, LENGTH), generator=generator)
    for how in ("script", "trace"):
        torch.manual_seed(5)
        model = Tied().train()
        names = "\n".join(name for name, _ in model.named_buffers(remove_duplicate=False) if name not in model.state_dict())
        made = archive(model, how, inputs[:4], {"non_persistent_buffers": names})
        for ranks, precision, bound in ((1, "float64", 1e-14), (3, "float64", 1e-14), (2, "float32", 1e-6)):
            with scratch() as folder:
                trial = Trial(PROGRAM, folder, made, inputs, targets, precision=precision, batch=7, steps=3)
                gradient = trial.gradient(ranks)
                trial.train(ranks)
                reference = copy.deepcopy(model).double()
                start = {name: value.clone() for name, value in reference.state_dict().items()}
                expected = sgd(reference, inputs, targets, trial.batches, loss=mean_over_tokens)
                error = relative_l2(gradient, expected)
                moved = relative_l2({name: trial.weights[name].double() - start[name] for name in start}, {name: value - start[name] for name, value in reference.state_dict().items()})
                report.check(error <= bound and moved <= bound * 10 and set(gradient) == set(expected), f"tied, {how}, {ranks} rank(s), {precision}: gradient {error:.1e}, three steps {moved:.1e}")
                fresh = Tied()
                fresh.load_state_dict(load_file(trial.file), strict=True)
                shared = torch.equal(fresh.head.weight, fresh.words.weight) and torch.equal(trial.weights["again.0.weight"], trial.weights["block.0.weight"])
                report.check(shared, f"tied, {how}, {ranks} rank(s): the checkpoint loads with strict=True, all names alike")
                if ranks > 1:
                    continue
                once = trial.weights
                # To start from: under either name of what is tied, with or without what is not persistent.
                for leave_out in (["words.weight", "again.0.weight"], ["head.weight", "scale"], []):
                    start = {name: value for name, value in once.items() if name not in leave_out}
                    save_file({**start, **({"positions": torch.arange(LENGTH)} if not leave_out else {})}, trial.folder / "start.safetensors")
                    trial.train(weights=f'weights = "{trial.folder}/start.safetensors"', rate=0.0)
                    report.check(all(torch.equal(trial.weights[name], once[name]) for name in once), f"tied, {how}: weights without {leave_out} are taken")
                save_file({**once, "head.weight": once["head.weight"] + 1}, trial.folder / "start.safetensors")
                said = trial.train(weights=f'weights = "{trial.folder}/start.safetensors"', expect=(2,))
                report.check("words.weight and head.weight are one tensor" in said.replace("head.weight and words.weight", "words.weight and head.weight"), "two values of one tensor are refused", said)


def shared_norm(report, generator):
    inputs, targets = torch.randn(SAMPLES, WIDTH, generator=generator, dtype=torch.float64), torch.randint(0, WORDS, (SAMPLES,), generator=generator)
    torch.manual_seed(6)
    model = SharedNorm().train()
    made = archive(model, "script", inputs[:4].float())
    for ranks, mode, micro, more in ((1, "exact", 4, ""), (2, "exact", 5, ""), (1, "local", SAMPLES, "[memory]\nrecompute = 2"), (1, "local", SAMPLES, "")):
        with scratch() as folder:
            trial = Trial(PROGRAM, folder, made, inputs, targets, batch_norm=f'mode = "{mode}"', micro=micro, steps=3, more=more)
            trial.train(ranks)
            reference = copy.deepcopy(model).double()
            sgd(reference, inputs, targets, trial.batches)
            ours = {name: value for name, value in trial.weights.items()}
            error = relative_l2(ours, reference.state_dict())
            report.check(error <= 1e-13, f"a BatchNorm called twice, momentum None, {mode}{' recomputed' if more else ''}, {ranks} rank(s): parameters and buffers {error:.1e}", str({name: (ours[name], value) for name, value in reference.state_dict().items() if "running" in name}))
            SharedNorm().load_state_dict(trial.weights, strict=True)


def main():
    report = Report()
    generator = torch.Generator().manual_seed(7)
    tied(report, generator)
    shared_norm(report, generator)
    inputs, targets = torch.randn(SAMPLES, WIDTH, generator=generator, dtype=torch.float64), torch.randint(0, WORDS, (SAMPLES,), generator=generator)
    with scratch() as folder:
        model = SmallTypes()
        trial = Trial(PROGRAM, folder, archive(model, "script", None), inputs, targets, precision="float32")
        trial.train(2)
        kept = {name: value for name, value in model.named_buffers() if value.dtype not in (torch.float16, torch.bfloat16)}
        report.check(all(trial.weights[name].dtype == value.dtype and torch.equal(trial.weights[name], value) for name, value in kept.items()), f"buffers of {len(kept)} other types are saved as they are")
        gradient = trial.gradient(1)
        expected = sgd(copy.deepcopy(model), inputs.float(), targets, [list(range(SAMPLES))])
        error = relative_l2(gradient, expected)
        report.check(error <= 1e-6, f"buffers of other types: gradient {error:.1e}")
        model.load_state_dict(trial.weights, strict=True)
    with scratch() as folder:
        model, hidden = Hidden(), torch.rand(SAMPLES, WIDTH, generator=generator) > 0.6
        gradient = Trial(PROGRAM, folder, archive(model, "script", None), hidden, targets).gradient(1)
        error = relative_l2(gradient, sgd(copy.deepcopy(model).double(), hidden, targets, [list(range(SAMPLES))]))
        report.check(error <= 1e-14, f"booleans reach a script as such: gradient {error:.1e}")
    refused = [
        ("a complex parameter", Complex(True), "the parameter factor is complex"),
        ("a complex buffer", Complex(False), "factor is of type ComplexFloat"),
        ("a parameter in another's memory", Overlapping(), "share memory"),
        ("a parameter that is a buffer too", AlsoBuffer(), "head.weight and again share memory"),
    ]  # fmt: skip
    for name, model, words in refused:
        with scratch() as folder:
            trial = Trial(PROGRAM, folder, archive(model, "script", None), inputs, targets, precision="float32")
            said = trial.train(expect=(2,))
            report.check(words in said, f"{name}: refused by name", said)
    return report.failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
