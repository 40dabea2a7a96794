#!/usr/bin/env python3
"""Models that keep, change or draw something in their forward: trained as PyTorch's one batch, or refused by operator and layer, or said at the start; and what a tape of them may hold."""
import pathlib
import sys
from typing import List

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from common import configuration, onebatch, read_json_lines, relative_l2, report, scratch

PROGRAM = sys.argv[1]
SAMPLES, WIDTH, CLASSES = 48, 6, 4
CONFIG = configuration("""
[run]
max_steps = {steps}
deterministic = {deterministic}
[batch]
global_batch_size = 24
{split}
[optimizer]
lr = 0.1
[batch_norm]
mode = "{mode}"
[memory]
recompute = {recompute}
[probe]
cache = false
[checkpoint]
{checkpoint}
""")


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)


class Renormed(Base):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8)

    def forward(self, x):
        ids = (x[:, 0] * 10).abs().long() % 20
        with torch.no_grad():  # what nn.Embedding(max_norm=0.5) traces to
            torch.embedding_renorm_(self.table.weight, ids, 0.5, 2.0)
        return self.last(self.table(ids) + self.first(x))


class Clamped(Base):
    def forward(self, x):
        self.first.weight.data.clamp_(-0.1, 0.1)
        return self.last(self.first(x).relu())


class Averaging(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(8))

    def forward(self, x):
        y = self.first(x)
        if self.training:
            self.average.mul_(0.9).add_(y.detach().mean(0) * 0.1)
        return self.last(y - self.average)


class Replacing(Averaging):
    def forward(self, x):
        y = self.first(x)
        if self.training:
            self.average = self.average * 0.9 + y.detach().mean(0) * 0.1
        return self.last(y - self.average)


class ThroughANumber(Averaging):
    def forward(self, x):
        y = self.first(x)
        self.average.fill_(float(y.mean()))
        return self.last(y - self.average)


class ThroughAView(Averaging):
    def forward(self, x):
        y = self.first(x)
        self.average[2:4] = y.detach().mean(0)[2:4]
        return self.last(y - self.average)


class Instance(Base):
    def __init__(self):
        super().__init__()
        self.norm = nn.InstanceNorm1d(2, track_running_stats=True)

    def forward(self, x):
        return self.last(self.norm(self.first(x).view(-1, 2, 4)).flatten(1))


class Counting(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        y = self.first(x)
        self.calls.add_(1)
        return self.last(y * (1.0 + self.calls))


class CountingSteps(Counting):
    """Allowed where forwards are one a step."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        self.calls.add_(1)
        return self.last(self.norm(self.first(x)))


class Remembering(Base):
    calls: int

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.last(self.first(x) * self.calls)


class Caching(Averaging):
    """A buffer that every forward makes the same: harmless."""

    def forward(self, x):
        self.average.copy_(torch.arange(8, device=x.device))
        return self.last(self.first(x) + self.average)


class Noisy(Base):
    def forward(self, x):
        y = self.first(x)
        return self.last(torch.relu(y + torch.randn_like(y)))


class DropPath(Base):
    def forward(self, x):
        y = self.first(x)
        return self.last(y * torch.empty(x.size(0), 1, dtype=x.dtype).bernoulli_(0.5) + y.relu())


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(2, 5, num_layers=2, batch_first=True), nn.GRU(5, 4, batch_first=True, dropout=0.0)
        self.last = nn.Linear(4, CLASSES)

    def forward(self, x):
        y = self.gru(self.lstm(x.view(-1, 3, 2))[0])[0]
        return self.last(y[:, 2])


class Normalised(Base):
    """BatchNorm as a function, without a module."""

    def forward(self, x):
        return self.last(functional.batch_norm(self.first(x), None, None, None, None, True, 0.1, 1e-5).relu())


class ScalarTensor(Base):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.last(self.norm(self.first(x)) * torch.tensor(2.5) + torch.tensor(1))


class ListTensor(ScalarTensor):
    def forward(self, x):
        return self.last(self.norm(self.first(x)) * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], dtype=x.dtype))


class Data(ScalarTensor):
    """Activations by way of .data, which no operator shows."""

    def forward(self, x):
        y = self.norm(self.first(x))
        return self.last(y / (1.0 + y.data.abs()))


class ParameterNumber(ScalarTensor):
    def forward(self, x):
        return self.last(self.norm(self.first(x)) * float(self.first.weight.abs().sum()))


class ParameterBranch(ScalarTensor):
    def forward(self, x):
        y = self.norm(self.first(x))
        if bool(self.last.bias.sum() > 0.0):
            y = y * 2.0
        return self.last(y)


class BufferNumber(ScalarTensor):
    """A number that the forward itself changes, by BatchNorm."""

    def forward(self, x):
        return self.last(self.norm(self.first(x)) * float(self.norm.running_mean.sum()))


class ConstantNumber(ScalarTensor):
    """A number from a buffer that nobody changes may be on a tape."""

    def __init__(self):
        super().__init__()
        self.register_buffer("factor", torch.tensor(3.0))

    def forward(self, x):
        return self.last(self.norm(self.first(x)) * float(self.factor))


class DataShape(ScalarTensor):
    def forward(self, x):
        y = self.norm(self.first(x))
        return self.last(y) * y[y[:, 0] > 0.0].size(0)


class DataList(ScalarTensor):
    """Reads its data past all operators."""

    def forward(self, x):
        values: List[float] = x[0].tolist()
        return self.last(self.norm(self.first(x)) * values[0])


class Sparse(Base):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8, sparse=True)

    def forward(self, x):
        return self.last(self.table((x[:, 0] * 10).abs().long() % 20) + self.first(x))


class Case:
    """One model saved in a folder with data, and the program run on it."""

    def __init__(self, folder, model, mode="local", recompute='"off"', deterministic="false", checkpoint="", steps=1, split="micro_batch_size = 5"):
        self.folder = folder = pathlib.Path(folder)
        self.options = {"mode": mode, "recompute": recompute, "deterministic": deterministic, "split": split}
        torch.manual_seed(7)
        self.model = model().train()
        self.data = {"x": torch.randn(SAMPLES, WIDTH), "y": torch.randint(0, CLASSES, (SAMPLES,))}
        save_file(self.data, folder / "data.safetensors")
        torch.jit.script(self.model).save(str(folder / "model.pt"))
        self.write(checkpoint, steps)

    def write(self, checkpoint="", steps=1, name="c.toml"):
        self.config = self.folder / name
        self.config.write_text(CONFIG.format(folder=self.folder, checkpoint=checkpoint, steps=steps, **self.options))

    def run(self, command, ranks, *more, expect):
        return onebatch(PROGRAM, ranks, [command, self.config, *more], expect=expect)

    def gradient(self, ranks):
        """The program's of the first batch, and PyTorch's of the same samples at once."""
        self.run("train", ranks, "--quiet", expect=(0,))
        order = read_json_lines(self.folder / "run" / "samples.jsonl")[0]["indices"]
        self.run("verify", ranks, "--save-gradient", self.folder / "g.safetensors", expect=(0, 5))
        model = self.model.double().train()
        functional.cross_entropy(model(self.data["x"].double()[order]), self.data["y"][order]).backward()
        return load_file(self.folder / "g.safetensors"), {key: value.grad.to_dense() for key, value in model.named_parameters() if value.grad is not None}


    def step(self, ranks):
        """What one step of plain SGD has changed, over the learning rate: the gradient once more, past `verify`."""
        before = {key: value.detach().double().clone() for key, value in self.model.named_parameters()}
        self.run("train", ranks, "--quiet", expect=(0,))
        order = read_json_lines(self.folder / "run" / "samples.jsonl")[0]["indices"]
        after = load_file(self.folder / "run" / "checkpoints" / "step-1" / "model.safetensors")
        model = self.model.double().train()
        functional.cross_entropy(model(self.data["x"].double()[order]), self.data["y"][order]).backward()
        return {key: (before[key] - after[key]) / 0.1 for key in before}, {key: value.grad.to_dense() for key, value in model.named_parameters()}


def refused(model, words, ranks=2, **options):
    """`train` ends with the user's exit code before a step, and names operator, layer and tensor."""
    with scratch() as folder:
        out = Case(folder, model, **options).run("train", ranks, "--quiet", expect=(0, 1, 2, 4, 5))
        trained = (pathlib.Path(folder) / "run" / "checkpoints").exists()
        missing = [word for word in words if word not in out]
        return report(not missing and not trained and "Traceback" not in out, f"{model.__name__} is refused, with {words}", f"trained {trained}, missing {missing} in {out[-800:]}")


def equal(model, ranks=2, tolerance=1e-12, **options):
    with scratch() as folder:
        error = relative_l2(*Case(folder, model, **options).gradient(ranks))
        return report(error <= tolerance, f"{model.__name__} {options}: PyTorch's gradient, off by {error:.1e}", f"more than {tolerance}")


def trained(model, ranks=2, tolerance=1e-12, **options):
    with scratch() as folder:
        error = relative_l2(*Case(folder, model, **options).step(ranks))
        return report(error <= tolerance, f"{model.__name__} {options}: PyTorch's step, off by {error:.1e}", f"more than {tolerance}")


def test_state():
    failures = refused(Renormed, ["aten::embedding_renorm_", "table.weight", "max_norm"])
    failures += refused(Clamped, ["aten::clamp_", "first.weight"])
    failures += refused(Averaging, ["aten::", "after first", "the buffer average", "samples"])
    failures += refused(Averaging, ["the buffer average"], mode="exact")
    failures += refused(Replacing, ["aten::add", "the buffer average", "samples"])
    failures += refused(ThroughANumber, ["aten::fill_", "the buffer average", "samples"])
    failures += refused(ThroughAView, ["aten::copy_", "the buffer average", "samples"])
    failures += refused(Instance, ["aten::instance_norm", "norm.running_mean", "norm.running_var", "track_running_stats=False"])
    failures += refused(Counting, ["aten::add_", "the buffer calls", "every forward"])
    failures += refused(Remembering, ["the attribute calls"])
    return failures + equal(Caching)


def test_counted_steps():
    """Validation's forwards are none of them, however many each rank makes."""
    with scratch() as folder:
        case = Case(folder, CountingSteps, mode="exact", checkpoint=f'resume = "never"\n[data.validation]\npath = "{folder}/validation.safetensors"', steps=2, split="micro_batch_size = [4, 1]")
        save_file(case.data, case.folder / "validation.safetensors")
        case.run("train", 2, "--quiet", "--set", "run.validate_every_steps=1", "--set", "verify.at_start=false", expect=(0,))
        calls = load_file(case.folder / "run" / "checkpoints" / "step-2" / "model.safetensors")["calls"].item()
        return report(calls == 2, "a buffer that counts steps counts no validation", f"it is {calls}")


def test_tapes():
    exact = {"mode": "exact"}
    failures = equal(Normalised, **exact) + equal(Normalised, ranks=1, **exact)
    failures += equal(Recurrent, recompute="2")
    failures += equal(ScalarTensor, **exact) + equal(ScalarTensor, deterministic="true", **exact)
    failures += equal(ListTensor, **exact) + equal(ListTensor, deterministic="true", **exact)
    failures += equal(Data, **exact)
    failures += equal(ConstantNumber, **exact)
    failures += refused(ParameterNumber, ["aten::", "first.weight", "number"], **exact)
    failures += refused(ParameterBranch, ["aten::", "last.bias", "number"], recompute="2")
    failures += refused(BufferNumber, ["norm.running_mean", "number"], **exact)
    failures += refused(DataShape, ["aten::index", "shape"], **exact)
    failures += refused(DataList, ["other samples"], **exact)
    failures += refused(Noisy, ["aten::randn_like", "after first", "random"], recompute="2")
    return failures + trained(Sparse) + trained(Sparse, deterministic='"bitwise"') + trained(Sparse, recompute="2")


def test_randomness():
    failures = 0
    for model, op in ((Noisy, "aten::randn_like"), (DropPath, "aten::bernoulli_")):
        with scratch() as folder:
            case = Case(folder, model)
            out = case.run("train", 2, expect=(0,))
            failures += report("keyed by sample" in out and f"{op}, after first" in out, f"train names {op}", out)
            states = load_file(case.folder / "run" / "checkpoints" / "step-1" / "rank_generators.safetensors")
            failures += report(not states["rank0.cpu"].equal(states["rank1.cpu"]), "every rank has its own numbers")
    with scratch() as folder:
        out = Case(folder, Noisy).run("train", 2, "--strict", expect=(2,))
        failures += report("--strict" in out and "aten::randn_like" in out, "with --strict it is an error", out)
    return failures + test_resumed_noise()


def test_resumed_noise():
    """Four steps at once, and two and two: the same bits, since the generators went along, and whether there is what is watched draws nothing."""
    weights = []
    for parts in ((4,), (2, 4)):
        with scratch() as folder:
            fixed = "micro_batch_size = 6\ngradient_accumulation_steps = 2"  # another plan would draw others
            watched = f'\nkeep_best = {{metric = "loss"}}\n[data.validation]\npath = "{folder}/validation.safetensors"'
            case = Case(folder, Noisy, checkpoint='resume = "never"' + watched, steps=parts[0], split=fixed)
            save_file(case.data, case.folder / "validation.safetensors")
            case.run("train", 2, "--quiet", expect=(0,))
            if len(parts) == 2:
                (case.folder / "run").rename(case.folder / "before")
                case.write(f'resume = "{folder}/before"' + watched, steps=4)
                case.run("train", 2, "--quiet", expect=(0,))
            weights.append(load_file(case.folder / "run" / "checkpoints" / "step-4" / "model.safetensors"))
    return report(all(weights[0][key].equal(weights[1][key]) for key in weights[0]), "a resumed run draws what the uninterrupted one does")


if __name__ == "__main__":
    sys.exit(1 if test_state() + test_counted_steps() + test_tapes() + test_randomness() else 0)
