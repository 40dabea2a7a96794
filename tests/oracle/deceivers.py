#!/usr/bin/env python3
"""Models made to deceive `verify`, and honest ones beside them: none of the first may pass or train without a word, none of the second may fail.

deceivers.py PROGRAM [all | few] [--only TEXT]. A deceiver's `verify` ends with exit code 5 and its cause, or is refused by name (2); its
`train` is refused at the start (2), but for noise, which is said, and those whose fault a few samples cannot show. An honest model's `verify` and `train` end with 0;
in 16 bits `verify` may say that it cannot judge, and its float64 verdict is a pass."""
import argparse
import json
import pathlib
import random
import sys
import tempfile
import traceback
from typing import Optional

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from common import configuration

WIDTH, CLASSES, TOKENS = 6, 4, 5
SOURCES = tempfile.TemporaryDirectory(prefix="onebatch-deceivers-")  # of models that are made of text; it goes with the process
CONFIG = configuration("""
[run]
max_steps = 3
output_dir = "{folder}/runs"
seed = 3
[batch]
global_batch_size = 16
micro_batch_size = {micro}
[data]
inputs = ["{inputs}"]
target = "{target}"
[data.validation]
path = "{folder}/validation.safetensors"
[loss]
kind = "{loss}"
[optimizer]
lr = 0.05
[probe]
max_trials = 3
cache = false
""")


def write_data(path, samples, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, WIDTH, generator=g)
    tokens = torch.randint(0, 12, (samples, TOKENS), generator=g)
    labels = torch.randint(0, CLASSES, (samples, TOKENS), generator=g)
    labels[torch.rand(samples, TOKENS, generator=g) < 0.3] = -100
    labels[:, 0] = labels[:, 0].clamp(min=0)
    save_file({"x": x, "y": torch.randint(0, CLASSES, (samples,), generator=g), "z": torch.randn(samples, 3, generator=g), "image": torch.randn(samples, 3, 6, 6, generator=g),
               "tokens": tokens, "labels": labels}, path)  # fmt: skip


# ---- deceivers: a little network with something wrong in its middle


class Middle(nn.Module):
    def __init__(self, strength: float = 1.0):
        super().__init__()
        self.first, self.last, self.strength = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES), strength

    def forward(self, x):
        return self.last(self.middle(torch.tanh(self.first(x))))


def middle(text):
    """A Middle whose `middle` is that expression of h and self.strength."""
    name = "M" + str(abs(hash(text)))
    source = f"class {name}(Middle):\n    def middle(self, h):\n        return {text}\n\n    def forward(self, x):\n        return self.last(self.middle(torch.tanh(self.first(x))))\n"
    return from_source(source, name)


def from_source(source, name):
    path = pathlib.Path(SOURCES.name) / (name + ".py")  # TorchScript reads it again
    path.write_text(source)
    scope = dict(globals())
    exec(compile(source, str(path), "exec"), scope)
    import linecache

    linecache.cache[str(path)] = (len(source), None, source.splitlines(True), str(path))
    return scope[name]


class HandMadeNorm(Middle):
    def middle(self, h):
        return (h - h.mean(0)) / (h.var(0, unbiased=False) + 1e-5).sqrt()


class BySize(Middle):
    def middle(self, h):
        if h.size(0) > 2:
            return h * (1.0 + self.strength)
        return h


class SmallBatchOnly(Middle):
    """Wrong in micro-batches of one alone, which a batch's remainder makes."""

    def middle(self, h):
        if h.size(0) == 1:
            return h * (1.0 + self.strength)
        return h


class BufferCounter(Middle):
    def __init__(self, strength: float = 1.0):
        super().__init__(strength)
        self.register_buffer("calls", torch.zeros(()))

    def middle(self, h):
        self.calls.add_(1.0)
        return h * (1.0 + self.strength * self.calls)


class UnusedCounter(Middle):
    def __init__(self, strength: float = 1.0):
        super().__init__(strength)
        self.register_buffer("calls", torch.zeros(()))

    def middle(self, h):
        self.calls.add_(1.0)
        return h


class MovingMean(Middle):
    def __init__(self, strength: float = 1.0):
        super().__init__(strength)
        self.register_buffer("mean", torch.zeros(8))

    def middle(self, h):
        self.mean.mul_(0.9).add_(0.1 * h.detach().mean(0))
        return h - self.strength * self.mean


class UnusedMovingMean(Middle):
    def __init__(self, strength: float = 1.0):
        super().__init__(strength)
        self.register_buffer("mean", torch.zeros(8))

    def middle(self, h):
        self.mean.mul_(0.9).add_(0.1 * h.detach().mean(0))
        return h


class LastBatch(Middle):
    def __init__(self, strength: float = 1.0):
        super().__init__(strength)
        self.register_buffer("last_one", torch.zeros(8))

    def middle(self, h):
        out = h + self.strength * self.last_one
        self.last_one.copy_(h.detach()[-1])
        return out


class Attribute(Middle):
    def __init__(self, strength: float = 1.0):
        super().__init__(strength)
        self.calls = 0

    def middle(self, h):
        self.calls += 1
        return h * (1.0 + self.strength * self.calls)


class AttributeTensor(Middle):
    memory: Optional[torch.Tensor]

    def __init__(self, strength: float = 1.0):
        super().__init__(strength)
        self.memory = None

    def middle(self, h):
        memory = self.memory
        self.memory = h.detach().mean(0)
        if memory is None:
            return h
        return h + self.strength * memory


class Renormed(Middle):
    def middle(self, h):
        with torch.no_grad():
            self.last.weight.clamp_(-0.05, 0.05)
        return h


class Decayed(Middle):
    def middle(self, h):
        with torch.no_grad():
            self.last.weight.mul_(1.0 - 0.1 * self.strength)
        return h


class RenormedEmbedding(nn.Module):
    """What nn.Embedding(max_norm=0.5) does in Python; TorchScript leaves it out there."""

    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(12, 8), nn.Linear(8, CLASSES)

    def forward(self, tokens):
        with torch.no_grad():
            torch.embedding_renorm_(self.table.weight, tokens.flatten(), 0.5, 2.0)
        return self.last(F.embedding(tokens, self.table.weight).mean(1))


class SpectralLike(Middle):
    def __init__(self, strength: float = 1.0):
        super().__init__(strength)
        self.register_buffer("u", torch.randn(CLASSES))

    def middle(self, h):
        with torch.no_grad():
            v = F.normalize(self.last.weight.t().mv(self.u), dim=0)
            self.u.copy_(F.normalize(self.last.weight.mv(v), dim=0))
        return h / (1.0 + self.u.norm() * self.u[0].abs())


class InstanceStatistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, track_running_stats=True, affine=True), nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.last(self.norm(self.conv(x)).relu().mean([2, 3]))


class LocalNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.last(self.norm(self.conv(x)).relu().mean([2, 3]))


class OwnLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)

    def outputs(self, x):
        return self.last(torch.tanh(self.first(x)))


def own_loss(lines):
    """A model whose forward returns what those lines make of `out` and `y`: the loss and its weight."""
    name = "L" + str(abs(hash(lines)))
    body = "\n".join("        " + line for line in lines.split("; "))
    return from_source(
        f"class {name}(OwnLoss):\n    def forward(self, x, y):\n        out = self.last(torch.tanh(self.first(x)))\n        n = torch.full((), float(x.size(0)), dtype=out.dtype)\n        one = torch.ones((), dtype=out.dtype)\n{body}\n", name)


MIXES = ["mixes_samples"]
STATE = ["hidden_state", "noise", "mixes_samples", "changed_parameters"]
LOSS = ["loss_weight", "mixes_samples"]
NOISE = ["noise"]


def deceivers():
    """name: model, causes of which one is to be named, options."""
    cases = {}

    def add(name, model, causes, **options):
        cases[name] = (model, causes, options)

    for strength in (1.0, 0.1, 1e-2, 1e-3, 1e-4):
        add(f"minus the batch's mean, {strength:g}", middle("h - self.strength * h.mean(0)")(strength), MIXES)
    for strength in (1.0, 1e-2, 1e-3):
        add(f"minus the mean of everything, {strength:g}", middle("h - self.strength * h.mean()")(strength), MIXES)
        add(f"scaled by the size of the batch, {strength:g}", middle("h * (1.0 + self.strength / h.size(0))")(strength), MIXES)
        add(f"by the row's number, {strength:g}", middle("h + self.strength * torch.arange(h.size(0), dtype=h.dtype).unsqueeze(1)")(strength), MIXES)
        add(f"another way for large batches, {strength:g}", BySize(strength), MIXES)
        add(f"in the gradient alone, {strength:g}", middle("h + self.strength * (h.mean(0) - h.mean(0).detach())")(strength), MIXES)
        add(f"mixed with its neighbour, {strength:g}", middle("h + self.strength * h.roll(1, 0)")(strength), MIXES)
        add(f"noise, {strength:g}", middle("h + self.strength * torch.randn_like(h)")(strength), NOISE)
        add(f"a counter in a buffer, {strength:g}", BufferCounter(strength), STATE)
        add(f"a moving mean, {strength:g}", MovingMean(strength), STATE)
        add(f"a counter in an attribute, {strength:g}", Attribute(strength), STATE)
        add(f"the last batch's row, {strength:g}", LastBatch(strength), STATE)
    for name, text in {
        "softmax over the batch": "torch.softmax(h, 0) * h.size(1)", "a running sum": "torch.cumsum(h, 0)", "turned round": "h + 0.5 * h.flip(0)",
        "sorted": "torch.sort(h, 0)[0]", "by the largest": "h / h.abs().max()", "attention over the batch": "torch.softmax(h @ h.t(), 1) @ h",
        "normalised over the batch": "F.normalize(h, dim=0)", "above the median": "h * (h > h.median()).to(h.dtype)", "the batch's deviation": "h / (1.0 + h.std())",
        "one row for all": "h + h[:1]", "the last row for all": "h + h[-1:]", "by the batch's norm": "h / h.norm()", "centred and squared": "(h - h.mean(0, keepdim=True)).square()",
    }.items():  # fmt: skip
        add(name, middle(text)(), MIXES)
    for name, text in {
        "uniform noise": "h + torch.rand_like(h)", "Bernoulli": "h * torch.bernoulli(torch.full_like(h, 0.5))", "a dropout by hand": "h * (torch.rand(h.shape) > 0.3).to(h.dtype)",
        "a shuffle": "h + h[torch.randperm(h.size(0))]", "one draw a batch": "h * torch.rand(1).to(h.dtype)", "drop-path by hand": "h * (torch.rand(h.size(0), 1) > 0.5).to(h.dtype)",
        "normal numbers in place": "h + torch.empty_like(h).normal_()",
    }.items():  # fmt: skip
        add(name, middle(text)(), NOISE + MIXES)
    add("batch normalisation by hand", HandMadeNorm(), MIXES)
    add("a counter that nothing reads", UnusedCounter(), STATE)
    add("a moving mean that nothing reads", UnusedMovingMean(), STATE)
    add("a tensor in an attribute", AttributeTensor(), STATE)
    add("instance statistics", InstanceStatistics(), STATE, inputs="image")
    add("parameters clamped in the forward", Renormed(), ["changed_parameters"])
    add("parameters decayed in the forward", Decayed(), ["changed_parameters"])
    add("a renormed embedding", RenormedEmbedding(), ["changed_parameters"], inputs="tokens")
    add("power iterations in the forward", SpectralLike(), STATE)
    add("micro-batches of one", SmallBatchOnly(), MIXES)
    for name, text in {
        "a mean and 1": "return F.cross_entropy(out, y), one", "a mean and the count": "return F.cross_entropy(out, y), n", "a sum and 1": "return F.cross_entropy(out, y, reduction='sum'), one",
        "a penalty a forward": "return F.cross_entropy(out, y, reduction='sum') + self.last.weight.square().sum(), n", "a root of the count": "return F.cross_entropy(out, y, reduction='sum'), n.sqrt()",
        "a mean times the count and 1": "return F.cross_entropy(out, y) * n, one", "a contrast over the batch": "return torch.logsumexp(out @ out.t(), 1).sum() + F.cross_entropy(out, y, reduction='sum'), n",
        "the largest loss": "return F.cross_entropy(out, y, reduction='none').max() * n, n", "the count less one": "return F.cross_entropy(out, y, reduction='sum'), n - 0.5",
        "a mean over what is hard": "hard = (F.cross_entropy(out, y, reduction='none') > 1.3).to(out.dtype); return (F.cross_entropy(out, y, reduction='none') * hard).sum() / hard.sum().clamp(min=1.0) * n, n",
    }.items():  # fmt: skip
        add(f"own loss: {name}", own_loss(text)(), LOSS, loss="model")
    # What equal micro-batches hide: 56 samples, a batch of 12 in two of 6, a short one of 8 in 6 and 2.
    add("a mean and 1, in equal micro-batches", own_loss("return F.cross_entropy(out, y) * 1.0, one")(), LOSS, loss="model", samples=56, micro=6, set={"batch.global_batch_size": 12})
    for name, text in {"a root of nothing": "h + (h * 0.0).abs().sqrt()", "nothing by nothing": "h + (h - h) / (h - h)", "a logarithm of nothing": "h + torch.log(h * 0.0) * 0.0"}.items():
        add(name, middle(text)(), ["not_finite"], train=(1, 2))
    add("local BatchNorm", LocalNorm(), ["batch_norm"], inputs="image", train=(0,))
    add("synchronised BatchNorm in rounds", LocalNorm(), ["batch_norm"], inputs="image", ranks=2, micro=4, train=(0,), set={"batch_norm.mode": "sync"})
    add("a rounded reduction", middle("h * 1.0")(), ["reduction"], ranks=2, train=(0,), set={"comm.reduce_dtype": "bfloat16", "precision.compute": "float32", "precision.parameters": "float32"})
    for name in ("minus the batch's mean, 0.001", "noise, 0.001", "a counter in a buffer, 0.01"):
        model, causes, _ = cases[name]
        add(name + ", bfloat16", model, causes, set={"precision.compute": "bfloat16", "precision.parameters": "float32"})
        add(name + ", two ranks", model, causes, ranks=2, micro="[3, 5]")
    return cases


# ---- honest ones: drawn by chance


class Honest(nn.Module):
    def __init__(self, kind: str, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.first, self.last = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)
        self.norm = {"layer": nn.LayerNorm(8), "batch": nn.BatchNorm1d(8), "plain": nn.Identity(), "wide": nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))}[kind]

    def forward(self, x):
        return self.last(self.dropout(torch.relu(self.norm(self.first(x)))))


class HonestImages(nn.Module):
    def __init__(self, kind: str, dropout: float):
        super().__init__()
        self.conv, self.deep, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, stride=2), nn.Linear(8, CLASSES)
        self.norm = {"layer": nn.GroupNorm(2, 4), "batch": nn.BatchNorm2d(4), "plain": nn.Identity(), "wide": nn.InstanceNorm2d(4, affine=True)}[kind]
        self.dropout = nn.Dropout2d(dropout)

    def forward(self, x):
        return self.last(self.deep(self.dropout(torch.relu(self.norm(self.conv(x))))).relu().mean([2, 3]))


class HonestTokens(nn.Module):
    """A label for every token, some of which are ignored."""

    def __init__(self, kind: str, dropout: float):
        super().__init__()
        self.table, self.last, self.norm = nn.Embedding(12, 8), nn.Linear(8, CLASSES), nn.LayerNorm(8)
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.p, self.inside = dropout, kind == "wide"

    def forward(self, tokens):
        h = self.table(tokens)
        h = h + F.scaled_dot_product_attention(self.q(h), self.k(h), self.v(h), dropout_p=self.p if self.training else 0.0, is_causal=True)
        if self.inside:
            # As Llama does: a norm in float32, whatever the rest is in.
            short = h.float()
            h = (short * torch.rsqrt(short.square().mean(-1, keepdim=True) + 1e-5)).to(h.dtype)
        return self.last(self.norm(h))


class HonestLoss(OwnLoss):
    """The loss's sum and how much it weighs."""

    def forward(self, x, y):
        out = self.last(torch.tanh(self.first(x)))
        counts = (y != 0).to(out.dtype) + 0.25
        return (F.cross_entropy(out, y, reduction="none") * counts).sum(), counts.sum()


class HonestBuffers(Honest):
    """Buffers that never change, one of them with what masks have."""

    def __init__(self, kind: str, dropout: float):
        super().__init__(kind, dropout)
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
        self.register_buffer("scale", torch.full((8,), 1.5))

    def forward(self, x):
        return self.last(self.dropout(torch.relu(self.norm(self.first(x)) * self.scale)))


class FarFromZero(nn.Module):
    """What BatchNorm normalises lies 1e4 deviations from zero: its rounding is the problem's own, in the loss as in the gradient."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.last(torch.tanh(self.norm(0.1 * self.first(x) + 1e4)))


def honest_by_name():
    """name: model, options."""
    float64 = {"batch_norm.mode": "exact", "precision.compute": "float64", "precision.parameters": "float64"}
    return {f"honest far from zero, micro-batches of {micro}": (FarFromZero, {"micro": micro, "set": float64}) for micro in (3, 5, 7)}


def honest(number):
    """A model and a configuration of it, the number's own."""
    draw = random.Random(number)
    torch.manual_seed(number)
    family = draw.choice(["plain", "images", "tokens", "loss", "buffers", "regression"])
    kind, dropout = draw.choice(["layer", "batch", "plain", "wide"]), draw.choice([0.0, 0.0, 0.2])
    ranks = draw.choice([1, 1, 1, 2, 3])
    options = {"ranks": ranks, "micro": draw.choice([3, 5, 7, 16] + (["[3, 5]", "[7, 2]"] if ranks == 2 else [])), "set": {}}
    settings = options["set"]
    settings["optimizer.kind"] = draw.choice(["sgd", "adam", "adamw"])
    settings["optimizer.lr"] = draw.choice([0.05, 1e-3])
    settings["optimizer.weight_decay"] = draw.choice([0.0, 0.01])
    if settings["optimizer.kind"] == "sgd" and draw.random() < 0.5:
        settings["optimizer.momentum"] = 0.9
        settings["optimizer.nesterov"] = draw.choice(["true", "false"])
    if draw.random() < 0.3:
        settings["optimizer.max_grad_norm"] = draw.choice([0.1, 10.0])
    precision = draw.choice(["float64", "float64", "float32", "float32", "bfloat16", "float16"])
    settings["precision.compute"] = precision
    settings["precision.parameters"] = "float64" if precision == "float64" else ("float32" if draw.random() < 0.7 else precision)
    settings["batch.global_batch_size"] = draw.choice([12, 16, 17, 40])
    if draw.random() < 0.2 and family in ("plain", "buffers", "images"):
        settings["loss.label_smoothing"] = 0.1
    if family in ("plain", "buffers", "images") and kind == "batch":
        settings["batch_norm.mode" if draw.random() < 0.7 else "batch_norm.frozen"] = "exact"
        if "batch_norm.frozen" in settings:
            settings["batch_norm.frozen"] = "true"
    elif draw.random() < 0.25:
        settings["memory.recompute"] = 2
    if draw.random() < 0.15 and precision in ("float64", "float32") and settings["precision.parameters"] == precision and "memory.recompute" not in settings:
        settings["run.deterministic"] = draw.choice(["bitwise", "true"])
        if settings["run.deterministic"] == "bitwise" and not isinstance(options["micro"], int):
            settings["run.deterministic"] = "true"  # "bitwise" takes one size for all ranks
    if family == "images":
        return HonestImages(kind, dropout), {**options, "inputs": "image"}
    if family == "tokens":
        return HonestTokens(kind, dropout), {**options, "inputs": "tokens", "target": "labels"}
    if family == "loss":
        return HonestLoss(), {**options, "loss": "model"}
    if family == "regression":
        model = nn.Sequential(nn.Linear(WIDTH, 8), nn.Softplus(), nn.Linear(8, 3))
        return model, {**options, "loss": "mse", "target": "z"}
    return (HonestBuffers if family == "buffers" else Honest)(kind, dropout), options


# ---- running them


class Run:
    def __init__(self, program, folder, model, options):
        self.program, self.folder, self.options = program, pathlib.Path(folder), options
        write_data(self.folder / "data.safetensors", options.get("samples", 40), seed=11)
        write_data(self.folder / "validation.safetensors", 23, seed=12)
        torch.jit.script(model.train()).save(str(self.folder / "model.pt"))
        target = options.get("target", "y")
        self.config = self.folder / "c.toml"
        self.config.write_text(CONFIG.format(folder=self.folder, micro=options.get("micro", 5), inputs=options.get("inputs", "x"), target=target, loss=options.get("loss", "cross_entropy")))

    def __call__(self, command, *more):
        """Exit code and output."""
        import os
        import subprocess

        arguments = [command, self.config, *more]
        for key, value in self.options.get("set", {}).items():
            arguments += ["--set", f"{key}={value}"]
        ranks = self.options.get("ranks", 1)
        line = [self.program, *map(str, arguments)]
        if ranks > 1:
            line = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *line]
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1")
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    def verify(self):
        code, out = self("verify", "--json", self.folder / "v.json")
        path = self.folder / "v.json"
        return code, out, json.loads(path.read_text()) if path.exists() else {}


def is_a_mistake(out):
    """Of the configuration: then nothing was tried."""
    return "in the configuration" in out or "Traceback" in out


def judge_deceiver(run, causes, options):
    """What is wrong with what the program said of it; empty: nothing."""
    code, out, report = run.verify()
    if code not in (2, 5) or report.get("pass") or is_a_mistake(out):
        return f"verify ended with {code}: {out}"
    if code == 5 and (report.get("verdict") != "fail" or report.get("cause") not in causes or not report.get("reason")):
        return f"verify says {report.get('verdict')}, {report.get('cause')}: {report.get('reason')}"
    code, out = run("train")
    wanted = options.get("train", (2,))
    said = "noise" in causes and code == 0 and ("random numbers" in out or "drawn from" in out)
    if (code not in wanted and not said) or is_a_mistake(out):
        return f"train ended with {code}: {out[-600:]}"
    return ""


def judge_honest(run):
    code, out, report = run.verify()
    judged = code == 0 and report.get("verdict") == "pass" and report.get("cause") is None
    short = run.options["set"].get("precision.compute") in ("bfloat16", "float16")
    unsure = short and code == 5 and report.get("verdict") == "cannot_judge" and (report.get("float64") or {}).get("pass")
    if not judged and not unsure:
        return f"verify ended with {code}, {report.get('cause')}: {report.get('reason')}\n{out[-3000:]}"
    code, out = run("train")
    return "" if code == 0 and "not checked" not in out else f"train ended with {code}: {out[-600:]}"


# Each kind once, the ones that were hardest to see, and a dozen honest ones: what fits into a minute.
FEW = ["minus the batch's mean, 0.0001", "in the gradient alone, 0.001", "noise, 0.001", "a counter that nothing reads", "a counter in an attribute, 0.01", "a renormed embedding",
       "own loss: a penalty a forward", "a mean and 1, in equal micro-batches", "a root of nothing", "local BatchNorm", "a rounded reduction", "noise, 0.001, bfloat16"]  # fmt: skip
FEW_HONEST = [2, 5, 9, 14, 23, 31, 40, 77]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("what", nargs="?", default="few", choices=("few", "all"))
    options.add_argument("--only", default="", help="cases whose name holds this")
    options.add_argument("--honest", type=int, default=200)
    given = options.parse_args()
    program = str(pathlib.Path(given.program).resolve())
    torch.manual_seed(1)
    cases = deceivers()
    todo = [(name, *case) for name, case in cases.items() if given.what == "all" or given.only or name in FEW]
    todo += [(name, make(), None, settings) for name, (make, settings) in honest_by_name().items()]
    todo += [(f"honest {n}", None, None, {}) for n in (range(given.honest) if given.what == "all" or given.only else FEW_HONEST)]
    failures = count = 0
    for name, model, causes, settings in todo:
        if given.only not in name:
            continue
        count += 1
        try:
            with tempfile.TemporaryDirectory(prefix="onebatch-deceivers-") as folder:
                if causes is None:
                    model, settings = (model, settings) if model else honest(int(name.split()[1]))
                    wrong = judge_honest(Run(program, folder, model, settings))
                else:
                    wrong = judge_deceiver(Run(program, folder, model, settings), causes, settings)
        except Exception:
            wrong = traceback.format_exc()
        failures += bool(wrong)
        print(f"{'FAIL' if wrong else 'ok  '} {name}" + (f" {settings}\n     {wrong}" if wrong else ""), flush=True)
    print(f"{len(cases)} deceivers known; {count} cases, {failures} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
