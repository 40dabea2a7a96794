"""Dropout as integer arithmetic inside a graph: its mask is a function of seed, step, layer and sample, with the bits that the trainer draws."""
import math

import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from .refusals import ExportError
from .shared_norms import shared_batch_norm

OWN_RANDOMNESS = ("rand", "randn", "bernoulli", "multinomial", "normal", "uniform", "native_dropout", "rrelu", "exponential", "randint", "randperm", "poisson", "random", "geometric", "cauchy",
                  "log_normal")  # fmt: skip
# Of whole numbers these give the program's own floating type, as the trainer has it.
QUOTIENTS = ("mul", "div", "true_divide", "add", "sub", "rsub", "pow", "sqrt", "rsqrt", "exp", "exp2", "log", "log2", "sin", "cos", "reciprocal", "sigmoid", "tanh")
CLASS_WEIGHTS = "class_weights"  # in a KeyedProgram
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
REPLACED = ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")


def signed(number):
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


def shifted(x, places):
    """Of unsigned numbers: a shift of int64 would keep the sign."""
    return (x >> places) & ((1 << (64 - places)) - 1)


def mix_bits(x):
    """splitmix64's finaliser (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014)."""
    x = x + signed(0x9E3779B97F4A7C15)
    x = (x ^ shifted(x, 30)) * signed(0xBF58476D1CE4E5B9)
    x = (x ^ shifted(x, 27)) * signed(0x94D049BB133111EB)
    return x ^ shifted(x, 31)


def place_of_samples(sizes, samples):
    """The first of these sizes that varies with the number of samples, as the trainer finds it; numbers: the first."""
    if not isinstance(samples, torch.SymInt):
        return 0
    batch = samples.node.expr.free_symbols
    varying = (place for place, size in enumerate(sizes) if isinstance(size, torch.SymInt) and size.node.expr.free_symbols & batch)
    return next(varying, None)


class Draws:
    """The random layers of one forward, numbered as they run. `samples`: int64 [N]; `of_step`: an int64, the mixed seed and step."""

    def __init__(self, samples, of_step):
        self.samples, self.of_step, self.layers = samples, of_step, 0

    def kept(self, sizes, probability):
        """Booleans of these sizes, of which one varies with the samples; none does: all samples share them."""
        key = mix_bits(self.of_step ^ self.layers)
        self.layers += 1
        place = place_of_samples(sizes, self.samples.shape[0])
        if place is None:
            return self.drawn(key, self.samples.new_full((1,), -1), [1, *sizes], probability).squeeze(0)
        return self.drawn(key, self.samples, [sizes[place], *sizes[:place], *sizes[place + 1 :]], probability).movedim(0, place)

    def drawn(self, of_layer, samples, sizes, probability):
        """Booleans [k N, ...]: rows k n ... are sample n's. The same as the trainer's sample_noise()."""
        rows = sizes[0] // samples.shape[0]
        alone = statically_known_true(rows == 1)
        of_sample = sizes[1:] if alone else [rows, *sizes[1:]]
        key = mix_bits(of_layer ^ samples)
        for place, size in enumerate(of_sample):
            coordinate = torch.arange(size, device=key.device)
            if place == len(of_sample) - 1:
                key = key[..., None] + coordinate
                continue
            before, key = key[..., None], mix_bits(key[..., None] ^ coordinate)
            if place == 0 and not alone:  # a sample's only row has the sample's key: how many there are may be known when it runs
                key = torch.where(coordinate[-1:] == 0, before, key)
        return (shifted(mix_bits(key), 32) >= int(math.ldexp(probability, 32))).view(sizes)

    def noise(self, like, sizes, probability, kept):
        value = torch.full((), kept, dtype=like.dtype, device=like.device)
        return torch.where(self.kept(sizes, probability), value, torch.zeros((), dtype=like.dtype, device=like.device))


def spread(inputs, channels):
    return [*inputs.shape[:2], *(1 for _ in inputs.shape[2:])] if channels else list(inputs.shape)


def plain(draws, inputs, probability, channels):
    kept = 1.0 / (1.0 - probability) if probability < 1.0 else 0.0
    return inputs * draws.noise(inputs, spread(inputs, channels), probability, kept)


def alpha(draws, inputs, probability, channels):
    """Keeps mean and variance behind a SELU (Klambauer et al., 2017, section 3.4)."""
    size = 1.7580993408473766
    noise = draws.noise(inputs, spread(inputs, channels), probability, 1.0)
    if probability == 1.0:
        return inputs * torch.zeros_like(noise)
    a = 1.0 / math.sqrt((size * size * probability + 1.0) * (1.0 - probability))
    return inputs * (noise * a) + ((noise - 1.0) * (size * a) + size * a * probability)


def attention(draws, query, key, value, mask=None, probability=0.0, is_causal=False, scale=None, enable_gqa=False):
    if enable_gqa:
        key, value = (one.repeat_interleave(query.shape[-3] // one.shape[-3], -3) for one in (key, value))
    scores = (query * (scale if scale is not None else 1.0 / math.sqrt(query.shape[-1]))) @ key.transpose(-2, -1)
    if is_causal:
        seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(seen.logical_not(), -math.inf)
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -math.inf) if mask.dtype == torch.bool else scores + mask
    weights = torch.ops.aten._safe_softmax(scores, -1)
    return (plain(draws, weights, probability, False) if probability > 0.0 else weights).matmul(value)


def bilinear(first, second, weight, bias=None):
    """LibTorch's own has a backward that is not traced."""
    made = torch.einsum("...i,oij,...j->...o", first, weight, second)
    return made if bias is None else made + bias


def batch_norm(layer, inputs, weight, bias, running_mean, running_var, momentum, eps):
    """Whose statistics are of sums in float64, as LibTorch's on a CPU are: in float32 what is lost may be much beside a small mean."""
    made, by = shared_batch_norm(inputs, weight, bias, layer, eps)
    mean, _, _, variance = by.detach().unbind()
    count = inputs.numel() / inputs.shape[1]
    running_mean.copy_(running_mean * (1.0 - momentum) + mean * momentum)
    running_var.copy_(running_var * (1.0 - momentum) + variance * (count / (count - 1) * momentum))
    return made


class Norms:
    """The BatchNorms of one forward, numbered as they run."""

    def __init__(self):
        self.number = 0

    def begin(self):
        self.number = 0
        return self

    def next(self):
        self.number += 1
        return self.number - 1


def name_of(target):
    """Of LibTorch's operator; else nothing."""
    packet = getattr(target, "overloadpacket", None)
    return str(packet).removeprefix("aten.") if packet is not None else ""


class Keyed(torch.fx.Interpreter):
    """Runs a program's graph with these draws, with its own element type's literals in `after`, and what it makes on whatever device on the samples' own. `shares_statistics`: its BatchNorms have those of other micro-batches too."""

    def __init__(self, program, draws, before, after, norms, shares_statistics=False):
        super().__init__(program)
        self.draws, self.before, self.after, self.norms, self.shares_statistics = draws, before, after, norms, shares_statistics
        self.device = draws.samples.device

    def in_type(self, value):
        if isinstance(value, torch.device):
            return self.device
        return self.after if value is self.before else value

    def run_node(self, node):
        self.node = node
        return super().run_node(node)

    def region(self, target, args):
        """What runs with gradients off or on, or in another type: its random layers are counted with the others."""
        name, inner = str(target), 1 if "set_grad_enabled" in str(target) else 4
        if "autocast" not in name and "set_grad_enabled" not in name:
            raise ExportError(f"the program calls {name}, which is not compiled yet: train it with model.compiled = \"never\"")
        mode = torch.set_grad_enabled(args[0]) if inner == 1 else torch.autocast(self.device.type, dtype=args[1], enabled=args[2], cache_enabled=args[3])
        with mode:
            return type(self)(args[inner], self.draws, self.before, self.after, self.norms, self.shares_statistics).run(*args[inner + 1 :])

    def of_whole_numbers(self, target, name, args, kwargs):
        """What the program makes of whole numbers, or of none, is in its own type, which is the run's."""
        value, tensors = self.node.meta.get("val"), [one for one in args if isinstance(one, torch.Tensor)]
        if self.before is self.after or not isinstance(value, torch.Tensor) or value.dtype is not self.before:
            return args, kwargs
        if not tensors and kwargs.get("dtype") is None and any(one.name == "dtype" for one in target._schema.arguments):
            return args, kwargs | {"dtype": self.after}
        if tensors and name in QUOTIENTS and not any(one.is_floating_point() or one.is_complex() for one in tensors):
            return tuple(one.to(self.after) if isinstance(one, torch.Tensor) else one for one in args), kwargs
        return args, kwargs

    def call_function(self, target, args, kwargs):
        packet = getattr(target, "overloadpacket", None)
        name = name_of(target)
        if isinstance(target, torch._ops.HigherOrderOperator):
            return self.region(target, args)
        args, kwargs = tuple(map(self.in_type, args)), {key: self.in_type(value) for key, value in kwargs.items()}
        if packet is not None:
            args, kwargs = self.of_whole_numbers(target, name, args, kwargs)
        if name == "detach_":
            return args[0].detach()
        if name.rstrip("_") in REPLACED and args[1] > 0.0 and args[2]:
            changed = (alpha if "alpha" in name else plain)(self.draws, args[0], args[1], "feature" in name)
            return args[0].copy_(changed) if name.endswith("_") else changed
        if target is torch.ops.aten.bernoulli_.float and args[0].dim() > 0:  # paths that are dropped
            kept = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
            return args[0].fill_(1.0) if kept == 1.0 else args[0].copy_(self.draws.noise(args[0], args[0].shape, 1.0 - kept, 1.0))
        if name == "scaled_dot_product_attention":
            return self.attend(target, args, kwargs)
        if name == "bilinear":
            return bilinear(*args)
        if name == "batch_norm" and args[5] and self.shares_statistics and self.is_of_samples(args[0]):
            return shared_batch_norm(*args[:3], self.norms.next(), args[7])[0]
        if name == "batch_norm" and args[5] and args[3] is not None and args[0].dtype is torch.float32 and args[0].device.type == "cpu":
            return batch_norm(self.norms.next(), *args[:5], *args[6:8])
        if target is torch.ops.aten.view.default:  # attention's results have other strides here than where the program was exported: a view may be none
            return args[0].reshape(args[1])
        refuse_own_randomness(name, args)
        return super().call_function(target, args, kwargs)

    def is_of_samples(self, inputs):
        """Weights that are standardised by a BatchNorm are not."""
        return place_of_samples(inputs.shape, self.draws.samples.shape[0]) is not None

    def attend(self, target, args, kwargs):
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        given = dict(zip(names, args)) | kwargs
        # Of float64 the compiler takes the sums that LibTorch's attention keeps for its backward for float32.
        if given.get("dropout_p", 0.0) == 0.0 and self.after is not torch.float64:
            return super().call_function(target, args, kwargs)
        return attention(self.draws, given["query"], given["key"], given["value"], given.get("attn_mask"), given.get("dropout_p", 0.0), given.get("is_causal", False), given.get("scale"), given.get("enable_gqa", False))  # fmt: skip


def refuse_own_randomness(name, args):
    if name.rstrip("_").removesuffix("_like") in OWN_RANDOMNESS:
        raise ExportError(f"the program calls {name}, which draws random numbers of its own: it cannot be compiled; train it with model.compiled = \"never\"")
    if name in RECURRENT and any(isinstance(one, float) and one > 0.0 for one in args):
        raise ExportError(f"the program calls {name} with dropout, which is not compiled yet: train it with model.compiled = \"never\"")


def check_sizes(samples, inputs, varying):
    """An export takes sizes of one name for several until it is told."""
    found = {varying[0][0]: samples}
    for tensor, names in zip(inputs, varying):
        for place, name in names.items():
            torch._check(found.setdefault(name, tensor.shape[place]) == tensor.shape[place])


class KeyedProgram(nn.Module):
    """(samples, the step's key, a factor, the gradients' sums, the program's inputs) to the loss's sum with the factor and without it, and where the program tells it its weight; what is done with the gradients' sums is no matter of the forward. `loss`: of what the program returns and the inputs that follow its own; None: the program returns the two.

    `varying`: {place: name} of the sizes of every input that vary; what has one name is one size, and of the samples' name there are as many as samples.
    """

    def __init__(self, program, before, after, varying, autocast=None, loss=None, own_inputs=0, class_weights=None, shares_statistics=False):
        super().__init__()
        self.register_buffer(CLASS_WEIGHTS, class_weights)
        self.program, self.before, self.after, self.autocast, self.loss, self.own_inputs = program, before, after, autocast, loss, own_inputs
        self.varying, self.shares_statistics, self.norms = varying, shares_statistics, Norms()

    def forward(self, samples, of_step, factor, sums, *inputs):
        check_sizes(samples.shape[0], inputs, self.varying)
        program = Keyed(self.program, Draws(samples, of_step), self.before, self.after, self.norms.begin(), self.shares_statistics)
        own = inputs[: self.own_inputs] if self.loss else inputs
        with torch.autocast(samples.device.type, dtype=self.autocast, enabled=self.autocast is not None, cache_enabled=False):
            returned = program.run(*own)
        if self.loss:
            summed = self.loss(returned, self.class_weights, *inputs[self.own_inputs :]).to(factor.dtype)
            return summed * factor, summed.detach()
        summed, weight = (one for one in pytree.tree_leaves(returned) if isinstance(one, torch.Tensor))
        summed = summed.to(factor.dtype)
        return summed * factor, summed.detach(), weight.detach().to(factor.dtype)


def wide(dtype):
    """The type of a loss's sum."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def cross_entropy(loss, class_weights, outputs, targets, weights=None):
    """The sum over labels. `loss`: as compile_program() has it; `weights`: of the labels."""
    if loss["class_dim"] == "second":
        outputs = outputs.movedim(1, -1)
    if loss["label_weights"] == "mixed":  # two labels of each sample
        outputs = outputs.unsqueeze(1).expand(-1, 2, -1)
    how = {"weight": class_weights, "ignore_index": loss["ignore_index"], "label_smoothing": loss["label_smoothing"]}
    rows, labels = outputs.flatten(0, -2), targets.flatten()
    if weights is None:
        return F.cross_entropy(rows, labels, reduction="sum", **how)
    return (F.cross_entropy(rows, labels, reduction="none", **how) * weights.flatten()).sum()


def squared_error(outputs, targets):
    """The mean over each sample's outputs, summed over samples."""
    return F.mse_loss(outputs, targets, reduction="sum") / math.prod(outputs.shape[1:])
