"""Random models on vectors [N, F]: layers, BatchNorm of every kind, memory layouts, ties, buffers and parameters of every type."""
import torch
from torch import Tensor, nn
from torch.nn import functional

from random_families import family

REAL = ("float64", "float32")


class Mlp(nn.Module):
    def __init__(self, sizes, act, bias, norm):
        super().__init__()
        parts = []
        for i in range(len(sizes) - 1):
            parts.append(nn.Linear(sizes[i], sizes[i + 1], bias=bias))
            if i < len(sizes) - 2:
                parts += [norm(sizes[i + 1]), act()]
        self.layers = nn.Sequential(*parts)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


ACTS = [nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.Softplus, nn.LeakyReLU, nn.Sigmoid, nn.ELU]


def hidden(rng, d):
    return [d["F"]] + [rng.randint(3, 12) for _ in range(rng.randint(1, 3))] + [d["K"]]


def identity(width):
    return nn.Identity()


@family("mlp", "vector")
def mlp(rng, d):
    return Mlp(hidden(rng, d), rng.choice(ACTS), rng.random() < 0.8, identity)


@family("mlp_values", "vector", out="values")
def mlp_values(rng, d):
    return Mlp(hidden(rng, d), rng.choice(ACTS), True, identity)


@family("mlp_column", "vector", out="column", honest=False)
def mlp_column(rng, d):
    return Mlp(hidden(rng, d)[:-1] + [1], nn.Tanh, True, identity)


@family("layer_norm", "vector")
def layer_norm(rng, d):
    affine = rng.random() < 0.7
    return Mlp(hidden(rng, d), rng.choice(ACTS), True, lambda width: nn.LayerNorm(width, elementwise_affine=affine))


@family("builtin_mlp", "vector", builtin="mlp", ways=("builtin",))
def builtin_mlp(rng, d):
    sizes = hidden(rng, d)
    model = nn.Sequential()
    for i in range(len(sizes) - 1):
        model.add_module(f"layer{i}", nn.Linear(sizes[i], sizes[i + 1]))
        if i < len(sizes) - 2:
            model.add_module(f"relu{i}", nn.ReLU())
    model.hidden = sizes[1:-1]
    return model


def batch_norm_mlp(**options):
    def make(rng, d):
        chosen = {"eps": rng.choice([1e-5, 1e-3]), "momentum": rng.choice([0.1, 0.3]), **options}
        return Mlp(hidden(rng, d), rng.choice(ACTS), True, lambda width: nn.BatchNorm1d(width, **chosen))

    return make


BN = {"batch_norm": True, "least": 2}
family("bn1d", "vector", **BN)(batch_norm_mlp())
family("bn_momentum_none", "vector", **BN)(batch_norm_mlp(momentum=None))
family("bn_affine_off", "vector", **BN)(batch_norm_mlp(affine=False))
family("bn_untracked", "vector", judge_validation=False, **BN)(batch_norm_mlp(track_running_stats=False))


class SharedBatchNorm(nn.Module):
    def __init__(self, features, width, classes, momentum):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(features, width), nn.Linear(width, width), nn.Linear(width, classes)
        self.norm = nn.BatchNorm1d(width, momentum=momentum)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x)).relu()
        return self.last(self.norm(self.second(x)).tanh())


@family("bn_shared", "vector", **BN)
def bn_shared(rng, d):
    return SharedBatchNorm(d["F"], rng.randint(3, 8), d["K"], rng.choice([0.1, None]))


class BatchNormBlock(nn.Module):
    """Its name holds "BatchNorm", but only the norm within it is one: everything else of it trains on when that is frozen."""

    def __init__(self, width):
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.linear(x))
        return y.relu() if self.training else y.relu() * 0.5


class NamedBatchNorm(nn.Module):
    def __init__(self, features, width, classes):
        super().__init__()
        self.first, self.block, self.last = nn.Linear(features, width), BatchNormBlock(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.block(self.first(x)))


@family("bn_in_name", "vector", ways=("script",), **BN)
def bn_in_name(rng, d):
    return NamedBatchNorm(d["F"], rng.randint(3, 8), d["K"])


class FunctionalBatchNorm(nn.Module):
    is_batch_norm = True

    def __init__(self, width):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.rand(width) + 0.5), nn.Parameter(torch.randn(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return functional.batch_norm(x, self.mean, self.variance, self.scale, self.shift, self.training, 0.2, 1e-5)


@family("bn_functional", "vector", **BN)
def bn_functional(rng, d):
    return Mlp(hidden(rng, d), nn.Tanh, True, FunctionalBatchNorm)


class FarBatchNorm(nn.Module):
    """A norm whose input's mean is ten thousand times its deviation."""

    def __init__(self, features, width, classes):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(features, width), nn.BatchNorm1d(width, eps=1e-8), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x) * 0.01 + 100.0).tanh())


@family("bn_far", "vector", precisions=REAL, **BN)
def bn_far(rng, d):
    return FarBatchNorm(d["F"], rng.randint(3, 8), d["K"])


class Tied(nn.Module):
    """One matrix, there and back; and under a second name."""

    def __init__(self, features, width, classes):
        super().__init__()
        self.there, self.back = nn.Linear(features, width, bias=False), nn.Linear(features, width, bias=False)
        self.back.weight = self.there.weight
        self.head = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.linear(self.there(x).tanh(), self.back.weight.t()))


@family("tied", "vector")
def tied(rng, d):
    return Tied(d["F"], rng.randint(3, 9), d["K"])


class TwoNames(nn.Module):
    def __init__(self, features, classes, norm):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(features, features), norm(features), nn.Tanh())
        self.again = self.block
        self.head = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.again(self.block(x)) + x)


@family("one_module_two_names", "vector")
def one_module_two_names(rng, d):
    return TwoNames(d["F"], d["K"], nn.LayerNorm)


@family("bn_two_names", "vector", **BN)
def bn_two_names(rng, d):
    return TwoNames(d["F"], d["K"], nn.BatchNorm1d)


@family("frozen_part", "vector")
def frozen_part(rng, d):
    model = Mlp(hidden(rng, d), rng.choice(ACTS), True, identity)
    for parameter in list(model.layers[0].parameters())[: rng.randint(1, 2)]:
        parameter.requires_grad_(False)
    return model


class Unused(nn.Module):
    def __init__(self, features, width, classes):
        super().__init__()
        self.first, self.never, self.last = nn.Linear(features, width), nn.Linear(width, width), nn.Linear(width, classes)
        self.lone = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu())


@family("unused", "vector")
def unused(rng, d):
    return Unused(d["F"], rng.randint(3, 9), d["K"])


class Transposed(nn.Module):
    """A parameter whose memory is column by column, one with gaps, and a scalar."""

    def __init__(self, features, width, classes):
        super().__init__()
        self.first = nn.Parameter((torch.randn(features, width) / features**0.5).t())
        self.second = nn.Parameter(torch.randn(width, 2, classes).permute(2, 1, 0) / width**0.5)
        self.scale = nn.Parameter(torch.tensor(1.3))

    def forward(self, x: Tensor) -> Tensor:
        h = functional.linear(x, self.first).tanh() * self.scale
        return torch.einsum("nw,kjw->nkj", h, self.second).sum(2)


@family("transposed", "vector")
def transposed(rng, d):
    return Transposed(d["F"], rng.randint(2, 9), d["K"])


class Expanded(nn.Module):
    """A parameter that is one column of memory seen several times, and one that is every second element of its memory."""

    def __init__(self, features, classes, kind):
        super().__init__()
        weight = torch.randn(classes, 1).expand(classes, features) if kind == "expanded" else torch.randn(classes, 2 * features)[:, ::2]
        self.weight = nn.Parameter(weight, requires_grad=True)
        self.mix = nn.Linear(classes, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(functional.linear(x, self.weight).tanh())


@family("strided", "vector")
def strided(rng, d):
    return Expanded(d["F"], d["K"], "strided")


class Buffers(nn.Module):
    """Constants of many types as buffers."""

    def __init__(self, features, classes, kind):
        super().__init__()
        self.first, self.last = nn.Linear(features, features), nn.Linear(features, classes)
        table = torch.randint(-3, 4, (features,))
        complex_table = torch.polar(torch.ones(features), torch.randn(features))
        kinds = {"int8": table.to(torch.int8), "int16": table.to(torch.int16), "uint8": table.abs().to(torch.uint8), "bool": table > 0,
                 "complex": complex_table, "scalar": torch.tensor(2), "empty": torch.zeros(0), "float16": torch.randn(features).half()}
        self.register_buffer("table", kinds[kind])
        self.register_buffer("passing", torch.arange(features), persistent=False)
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        if self.kind == "complex":
            h = torch.view_as_real(h * self.table).sum(-1)
        elif self.kind == "empty":
            h = h + self.table.sum()
        else:
            h = h * (self.table.to(h.dtype) + 0.5)
        return self.last(h[:, self.passing])


def buffers(kind):
    return lambda rng, d: Buffers(d["F"], d["K"], kind)


for type_name in ("int8", "int16", "uint8", "bool", "complex", "scalar", "empty", "float16"):
    family(f"buffer_{type_name}", "vector", **({"precisions": REAL} if type_name == "complex" else {}))(buffers(type_name))


class ComplexParameters(nn.Module):
    def __init__(self, features, width, classes):
        super().__init__()
        self.filter = nn.Parameter(torch.randn(width, features, dtype=torch.cfloat) / features**0.5)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.view_as_real(x.to(self.filter.dtype) @ self.filter.t())
        return self.head((h[:, :, 0] * h[:, :, 1] + h[:, :, 0]).tanh())


@family("complex_parameters", "vector", precisions=REAL)
def complex_parameters(rng, d):
    return ComplexParameters(d["F"], rng.randint(2, 6), d["K"])
