"""Random models on vectors [N, F] that are hard to train truly: numbers read in the forward, state, samples that see each other, noise, losses of their own."""
from typing import Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from random_families import family
from random_vector_models import REAL, identity

BN = {"batch_norm": True, "least": 2}


class Numbers(nn.Module):
    """A number or a branch that comes from parameters or from data."""

    def __init__(self, features, width, classes, kind):
        super().__init__()
        self.first, self.last = nn.Linear(features, width), nn.Linear(width, classes)
        self.temperature = nn.Parameter(torch.tensor([0.01, 0.02, 0.015]))
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        if self.kind == "item of parameter":
            h = h * (1.0 + float(self.temperature.abs().sum().item()) * 10.0)
        elif self.kind == "branch of parameter":
            if bool((self.temperature * 1000).sum() > 44.5):
                h = h * self.temperature.sum() * 20
            else:
                h = h * 2.0 + self.temperature.sum()
        elif self.kind == "item of data":
            h = h * float(x.abs().mean().item())
        elif self.kind == "branch of data":
            if bool(x[:, 0].mean() > 0):
                h = h * 1.5
            else:
                h = h * self.temperature.sum() * 30
        elif self.kind == "norm of data":
            h = h / h.norm()
        return self.last(h) + self.temperature.sum()


def numbers(kind):
    return lambda rng, d: Numbers(d["F"], rng.randint(3, 8), d["K"], kind)


family("item_of_parameter", "vector", ways=("script",))(numbers("item of parameter"))
family("branch_of_parameter", "vector", ways=("script",))(numbers("branch of parameter"))
family("item_of_data", "vector", ways=("script",), honest=False, alone=False, judge_validation=False)(numbers("item of data"))
family("branch_of_data", "vector", ways=("script",), honest=False, alone=False, judge_validation=False)(numbers("branch of data"))
family("norm_of_data", "vector", honest=False, alone=False, judge_validation=False)(numbers("norm of data"))


class Detached(nn.Module):
    def __init__(self, features, width, classes, kind):
        super().__init__()
        self.first, self.last = nn.Linear(features, width), nn.Linear(width, classes)
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        if self.kind == "detach":
            h = h * h.detach().abs()
        elif self.kind == "data":
            h = h + 0.5 * h.data.cos()
        elif self.kind == "straight":
            h = h + ((h * 4).round() / 4 - h).detach()
        elif self.kind == "no_grad":
            with torch.no_grad():
                gate = self.first(x).sigmoid()
            h = h * gate
        elif self.kind == "weight data":
            h = h + functional.linear(x, self.first.weight.data) * 0.3
        return self.last(h)


def detached(kind):
    return lambda rng, d: Detached(d["F"], rng.randint(3, 8), d["K"], kind)


family("detach", "vector")(detached("detach"))
family("data_of_tensor", "vector", ways=("script",))(detached("data"))
family("straight_through", "vector", precisions=REAL)(detached("straight"))
family("no_grad_region", "vector", ways=("script",))(detached("no_grad"))
family("data_of_parameter", "vector", ways=("script",))(detached("weight data"))


class InPlace(nn.Module):
    def __init__(self, features, width, classes):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(features, width), nn.Linear(width, width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu_(self.first(x).add_(0.25))
        y = self.second(h)
        y[:, 0] = 0.5
        y[:, 1:].mul_(1.5)
        z = torch.zeros_like(y)
        z[:, ::2] = y[:, ::2].tanh()
        return self.last(z.masked_fill_(z > 0.9, 0.9))


@family("in_place", "vector")
def in_place(rng, d):
    return InPlace(d["F"], rng.randint(3, 8), d["K"])


class State(nn.Module):
    """Buffers other than BatchNorm's that training changes."""

    def __init__(self, features, width, classes, kind):
        super().__init__()
        self.first, self.last = nn.Linear(features, width), nn.Linear(width, classes)
        self.register_buffer("average", torch.zeros(width))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        if self.training:
            with torch.no_grad():
                if self.kind == "average":
                    self.average.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
                elif self.kind == "sum":
                    self.average.add_(h.detach().sum(0))
                self.steps.add_(1)
        return self.last(h + 0.3 * self.average if self.kind != "count" else h)


def state(kind):
    return lambda rng, d: State(d["F"], rng.randint(3, 8), d["K"], kind)


STATE = {"ways": ("script",), "honest": False, "alone": False}
family("moving_average", "vector", **STATE)(state("average"))
family("cumulative_sum", "vector", **STATE)(state("sum"))
family("counted_steps", "vector", **STATE)(state("count"))


class Spectral(nn.Module):
    """Spectral normalisation by hand: its power iteration's vector is state that does not depend on the data."""

    def __init__(self, features, width, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, features))
        self.last = nn.Linear(width, classes)
        self.register_buffer("u", functional.normalize(torch.randn(width), dim=0))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                v = functional.normalize(self.weight.t() @ self.u, dim=0)
                self.u.copy_(functional.normalize(self.weight @ v, dim=0))
        v = functional.normalize(self.weight.t() @ self.u, dim=0).detach()
        sigma = torch.dot(self.u.clone(), self.weight @ v)
        return self.last(functional.linear(x, self.weight / sigma).tanh())


@family("spectral", "vector", ways=("script",), honest=False, alone=False)
def spectral(rng, d):
    return Spectral(d["F"], rng.randint(3, 8), d["K"])


class WeightNorm(nn.Module):
    def __init__(self, features, width, classes):
        super().__init__()
        self.v, self.g = nn.Parameter(torch.randn(width, features)), nn.Parameter(torch.rand(width, 1) + 0.5)
        self.slope = nn.PReLU(width)
        self.heads = nn.ModuleDict({"a": nn.Linear(width, classes), "b": nn.Linear(width, classes)})
        self.mixes = nn.ParameterList([nn.Parameter(torch.rand(())), nn.Parameter(torch.rand(classes))])

    def forward(self, x: Tensor) -> Tensor:
        h = self.slope(functional.linear(x, self.g * self.v / self.v.norm(2.0, dim=1, keepdim=True)))
        return self.heads["a"](h) * self.mixes[0] + self.heads["b"](h) * self.mixes[1]


@family("weight_norm", "vector")
def weight_norm(rng, d):
    return WeightNorm(d["F"], rng.randint(3, 8), d["K"])


class Clamped(nn.Module):
    """Changes its own parameter in the forward."""

    def __init__(self, features, width, classes):
        super().__init__()
        self.first, self.last = nn.Linear(features, width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.first.weight.clamp_(-0.2, 0.2)
        return self.last(self.first(x).tanh())


@family("clamped_parameter", "vector", ways=("script",), honest=False)
def clamped_parameter(rng, d):
    return Clamped(d["F"], rng.randint(3, 8), d["K"])


class AcrossBatch(nn.Module):
    """Mixes the samples of a batch without a BatchNorm."""

    def __init__(self, features, width, classes, kind):
        super().__init__()
        self.first, self.last = nn.Linear(features, width), nn.Linear(width, classes)
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        if self.kind == "mean":
            h = h - h.mean(0)
        elif self.kind == "softmax":
            h = h + functional.softmax(h, 0)
        elif self.kind == "cumsum":
            h = h + 0.1 * h.cumsum(0)
        elif self.kind == "first":
            h = h - h[0]
        elif self.kind == "similar":
            h = h + functional.softmax(h @ h.t(), -1) @ h
        elif self.kind == "size":
            h = h * x.size(0) * 0.05
        return self.last(h)


def across(kind):
    return lambda rng, d: AcrossBatch(d["F"], rng.randint(3, 8), d["K"], kind)


for kind_name, is_ordered in (("mean", False), ("softmax", False), ("cumsum", True), ("first", True), ("similar", False), ("size", False)):
    family(f"across_{kind_name}", "vector", honest=False, alone=False, ordered=is_ordered, judge_validation=False)(across(kind_name))


class Constants(nn.Module):
    """Tensors made in the forward."""

    def __init__(self, features, width, classes, norm):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(features, width), norm(width), nn.Linear(width, classes)
        self.alpha = 0.75  # a script's torch.tensor() rounds numbers to float32 first

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.first(x)) * torch.tensor(self.alpha, dtype=x.dtype) + torch.ones(1, dtype=x.dtype)
        for i in range(3):
            h = h + torch.full_like(h, 0.1 * i).cos()
        return self.last(torch.where(h > 0, h, torch.zeros((), dtype=h.dtype)))


@family("constants", "vector")
def constants(rng, d):
    return Constants(d["F"], rng.randint(3, 8), d["K"], identity)


@family("bn_constants", "vector", **BN)
def bn_constants(rng, d):
    return Constants(d["F"], rng.randint(3, 8), d["K"], nn.BatchNorm1d)


class Hungry(nn.Module):
    """A sample's activations take about a megabyte."""

    def __init__(self, features, classes):
        super().__init__()
        self.spread, self.first, self.last = nn.Parameter(torch.randn(8000, 1)), nn.Linear(features, 4), nn.Linear(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x.unsqueeze(1) * self.spread).tanh().mean(1))


@family("hungry", "vector", hungry=True)
def hungry(rng, d):
    return Hungry(d["F"], d["K"])


class Experts(nn.Module):
    """Each sample goes to the one expert that its gate likes best: how many samples an expert has depends on the data."""

    def __init__(self, features, width, classes, experts):
        super().__init__()
        self.gate = nn.Linear(features, experts)
        self.experts = nn.ModuleList([nn.Linear(features, width) for _ in range(experts)])
        self.last = nn.Linear(width, classes)
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        scores = self.gate(x).softmax(-1)
        best, which = scores.max(-1)
        out = torch.zeros(x.size(0), self.width, dtype=scores.dtype)
        for i, expert in enumerate(self.experts):
            rows = torch.nonzero(which == i).squeeze(1)
            out = out.index_add(0, rows, (expert(x.index_select(0, rows)).tanh() * best.index_select(0, rows).unsqueeze(1)).to(out.dtype))
        return self.last(out)


@family("experts", "vector", ways=("script",))
def experts(rng, d):
    return Experts(d["F"], rng.randint(3, 6), d["K"], rng.randint(2, 4))


class Distances(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.mix = nn.Bilinear(features, features, features)
        self.centres = nn.Parameter(torch.randn(classes, features))

    def forward(self, x: Tensor) -> Tensor:
        h = self.mix(x, x.flip(1)).tanh() + x
        return -((h.unsqueeze(1) - self.centres) ** 2).sum(-1) + functional.cosine_similarity(h.unsqueeze(1), self.centres.unsqueeze(0), -1)


@family("distances", "vector")
def distances(rng, d):
    return Distances(d["F"], d["K"])


class Inside32(nn.Module):
    """Computes a part in float32, whatever the run's precision."""

    def __init__(self, features, width, classes):
        super().__init__()
        self.first, self.last = nn.Linear(features, width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.last(h.float().sin().to(h.dtype))


@family("float32_inside", "vector", precisions=REAL)
def float32_inside(rng, d):
    return Inside32(d["F"], rng.randint(3, 8), d["K"])


class Noise(nn.Module):
    def __init__(self, features, width, classes, kind, p):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(features, width), nn.Linear(width, width), nn.Linear(width, classes)
        self.dropout, self.alpha, self.feature_alpha = nn.Dropout(p), nn.AlphaDropout(p), nn.FeatureAlphaDropout(p)
        self.kind, self.p = kind, p

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        if self.kind == "dropout":
            h = self.dropout(self.second(self.dropout(h)))
        elif self.kind == "functional":
            h = functional.dropout(self.second(h), self.p, self.training, True)
        elif self.kind == "alpha":
            h = self.alpha(h)
        elif self.kind == "feature_alpha":
            h = self.feature_alpha(h.unsqueeze(-1)).squeeze(-1)
        elif self.training:
            if self.kind == "randn":
                h = h + 0.3 * torch.randn_like(h)
            elif self.kind == "drop_path":
                h = h * torch.rand([h.size(0), 1], dtype=h.dtype).add_(0.5).floor_() * 2.0
            elif self.kind == "bernoulli":
                h = h * torch.bernoulli(torch.full_like(h, 0.5))
        return self.last(h)


def noise(kind):
    return lambda rng, d: Noise(d["F"], rng.randint(3, 8), d["K"], kind, rng.choice([0.1, 0.5, 0.9]))


for noise_name in ("dropout", "functional", "alpha", "feature_alpha"):
    family(f"dropout_{noise_name}" if noise_name != "dropout" else "dropout", "vector", random="keyed")(noise(noise_name))
for noise_name in ("randn", "drop_path", "bernoulli"):
    family(f"noise_{noise_name}", "vector", random="unkeyed", honest=False, ways=("script",))(noise(noise_name))


class OwnLoss(nn.Module):
    """Returns the sum of its loss and what it is divided by."""

    def __init__(self, features, width, classes, kind):
        super().__init__()
        self.first, self.last = nn.Linear(features, width), nn.Linear(width, classes)
        self.kind = kind

    def forward(self, x: Tensor, target: Tensor) -> Tuple[Tensor, Tensor]:
        loss = functional.cross_entropy(self.last(self.first(x).tanh()), target, reduction="none")
        if self.kind == "from data":
            weight = x[:, 0].abs() + 0.1
            return (loss * weight).sum(), weight.sum()
        if self.kind == "mean":
            return loss.mean(), torch.ones((), dtype=loss.dtype)
        if self.kind == "squared":
            return loss.sum() ** 2, torch.tensor(x.size(0), dtype=loss.dtype)
        return loss.sum(), torch.tensor(x.size(0), dtype=loss.dtype)


def own(kind):
    return lambda rng, d: OwnLoss(d["F"], rng.randint(3, 8), d["K"], kind)


OWN = {"out": "own", "ways": ("script",)}
family("own_loss", "vector", **OWN)(own("plain"))
family("own_weight_from_data", "vector", **OWN)(own("from data"))
family("own_mean", "vector", honest=False, alone=False, judge_validation=False, **OWN)(own("mean"))
family("own_squared", "vector", honest=False, alone=False, judge_validation=False, **OWN)(own("squared"))


class OwnWeighted(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.first, self.last = nn.Linear(features, features), nn.Linear(features, classes)

    def forward(self, x: Tensor, target: Tensor, weights: Tensor) -> Tuple[Tensor, Tensor]:
        outputs = self.last(self.first(x).sigmoid())
        loss = functional.cross_entropy(outputs, target, reduction="none") + 0.01 * outputs.pow(2).sum(1)
        return (loss * weights).sum(), weights.sum()


@family("own_weighted", "vector", weighted=True, **OWN)
def own_weighted(rng, d):
    return OwnWeighted(d["F"], d["K"])
