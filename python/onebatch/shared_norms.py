"""BatchNorms whose statistics are of more than the micro-batch: the trainer's own operators stand in the graph where micro-batches and ranks exchange sums; what surrounds them is fused with the rest."""
import operator
from typing import Optional

import torch
from torch import Tensor
from torch.export.graph_signature import ExportGraphSignature, OutputKind

from .refusals import ExportError


def wide(dtype):
    """Of a BatchNorm's parameters and statistics."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def by_channel(values, like):
    """[C] to [1, C, 1, ...]."""
    return values.view([1, -1, *(1 for _ in like.shape[2:])])


def but_channels(inputs):
    return [0, *range(2, inputs.dim())]


@torch.library.custom_op("onebatch::shared_moments", mutates_args=(), tags=(torch.Tag.flexible_layout,))
def shared_moments(inputs: Tensor, after: Optional[Tensor], layer: int, eps: float) -> Tensor:
    """Mean, 1 / sqrt(variance + eps), what the mean's rounding has left out of normalised values, and variance: [4, C]. The trainer's are of all that shares them, in the order that `after` makes."""
    rows = inputs.double().transpose(0, 1).flatten(1)
    variance = rows.var(1, correction=0)
    deviation = (variance + eps).rsqrt()
    mean = rows.mean(1)
    rounded = mean.to(wide(inputs.dtype))
    return torch.stack([rounded, deviation, (mean - rounded) * deviation, variance]).to(rounded.dtype)


@shared_moments.register_fake
def _(inputs, after, layer, eps):
    return inputs.new_empty((4, inputs.shape[1]), dtype=wide(inputs.dtype))


@torch.library.custom_op("onebatch::shared_sums", mutates_args=(), tags=(torch.Tag.flexible_layout,))
def shared_sums(gradient: Tensor, inputs: Tensor, by: Tensor, after: Optional[Tensor], layer: int, eps: float) -> tuple[Tensor, Tensor]:
    """Of the gradient and of it times the normalised values the sums of this micro-batch alone; what a gradient at the inputs has of normalised ones and beside it, of all that shares the statistics: [2, C] each."""
    normalised = (inputs.double() - by_channel(by[0], inputs)) * by_channel(by[1], inputs)
    plain = gradient.double().sum(but_channels(inputs))
    times = (gradient * (normalised - by_channel(by[2], inputs))).sum(but_channels(inputs))
    count = inputs.numel() / inputs.shape[1]
    return torch.stack([plain, times]).to(by.dtype), torch.stack([times / -count, (plain - times * by[2]) / -count]).to(by.dtype)


@shared_sums.register_fake
def _(gradient, inputs, by, after, layer, eps):
    return by.new_empty((2, by.shape[1])), by.new_empty((2, by.shape[1]))


def normalised(inputs, by):
    """Without what the mean's rounding has left out."""
    return (inputs.to(by.dtype) - by_channel(by[0], inputs)) * by_channel(by[1], inputs)


def forward(inputs, weight, bias, layer, eps):
    by = shared_moments(inputs, None, layer, eps)
    left = -by[2] if weight is None else -by[2] * weight
    made = normalised(inputs, by) * (1 if weight is None else by_channel(weight, inputs)) + by_channel(left if bias is None else left + bias, inputs)
    return made.to(inputs.dtype), by


def backward(gradient, inputs, weight, by, layer, eps):
    own, (slope, offset) = shared_sums(gradient, inputs, by, None, layer, eps)
    factor = by[1] if weight is None else by[1] * weight
    of_inputs = (normalised(inputs, by) * by_channel(slope, inputs) + by_channel(offset, inputs) + gradient.to(by.dtype)) * by_channel(factor, inputs)
    return of_inputs.to(inputs.dtype), own


@torch.library.custom_op("onebatch::shared_batch_norm", mutates_args=())
def shared_batch_norm(inputs: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], layer: int, eps: float) -> tuple[Tensor, Tensor]:
    """Outputs, and what shared_moments() returns."""
    return forward(inputs, weight, bias, layer, eps)


@shared_batch_norm.register_fake
def _(inputs, weight, bias, layer, eps):
    return torch.empty_like(inputs), inputs.new_empty((4, inputs.shape[1]), dtype=wide(inputs.dtype))


@torch.library.custom_op("onebatch::shared_batch_norm_backward", mutates_args=())
def shared_batch_norm_backward(gradient: Tensor, inputs: Tensor, weight: Optional[Tensor], by: Tensor, layer: int, eps: float) -> tuple[Tensor, Tensor]:
    return backward(gradient, inputs, weight, by, layer, eps)


@shared_batch_norm_backward.register_fake
def _(gradient, inputs, weight, by, layer, eps):
    return torch.empty_like(inputs), by.new_empty((2, by.shape[1]))


def keep_for_backward(ctx, inputs, output):
    given, weight, bias, ctx.layer, ctx.eps = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(given, weight, output[1])


def gradients(ctx, gradient, _):
    inputs, weight, by = ctx.saved_tensors
    of_inputs, own = shared_batch_norm_backward(gradient, inputs, weight, by, ctx.layer, ctx.eps)
    return of_inputs, own[1] if weight is not None else None, own[0] if ctx.has_bias else None, None, None


shared_batch_norm.register_autograd(gradients, setup_context=keep_for_backward)

DECOMPOSITIONS = {torch.ops.onebatch.shared_batch_norm.default: forward, torch.ops.onebatch.shared_batch_norm_backward.default: backward}


MOMENTS, SUMS = torch.ops.onebatch.shared_moments.default, torch.ops.onebatch.shared_sums.default
AFTER = {MOMENTS: 1, SUMS: 3}  # the place of the argument


def shares_sums(node):
    """Whether others wait for it: it is not to be computed again."""
    return node.target in AFTER


def in_order(program, number):
    """Lets each exchange of a joint graph wait for the one before: the BatchNorms of the forward in their order, then those of the backward in the opposite one. `number`: of the program's BatchNorms. Changes it; returns it."""
    graph, before, order = program.graph_module.graph, None, []
    for node in filter(shares_sums, list(graph.nodes)):
        node.update_arg(AFTER[node.target], before)
        order.append((node.target, node.args[AFTER[node.target] + 1]))
        before = node
        if node.target is SUMS:
            with graph.inserting_after(node):
                before = graph.call_function(operator.getitem, (node, 0))
            before.meta["val"] = node.meta["val"][0]
    if sum(target is MOMENTS for target, _ in order) != number:
        raise ExportError("the program has BatchNorms that its loss does not depend on, whose running statistics the code would leave alone, which is not compiled yet: train it with model.compiled = \"never\"")
    of_forward, of_backward = ([layer for target, layer in order if target is kind] for kind in (MOMENTS, SUMS))
    if order != [(MOMENTS, layer) for layer in of_forward] + [(SUMS, layer) for layer in of_backward] or of_forward != list(range(len(of_forward))) or of_backward != sorted(of_backward, reverse=True):
        raise ExportError("the program's backward meets its BatchNorms in another order than the reverse of its forward's, which is not compiled yet: train it with model.compiled = \"never\"")
    graph.lint()
    program.graph_module.recompile()
    return program


def made_of(node):
    """The inputs of the graph that it is computed of."""
    found, stack = set(), [node]
    while stack:
        one = stack.pop()
        if one not in found:
            found.add(one)
            stack.extend(one.all_input_nodes)
    return {one.name for one in found if one.op == "placeholder"}


def without_counters(program):
    """Without what buffers make of themselves: a BatchNorm's batches are counted by the trainer, once for all micro-batches."""
    graph, signature = program.graph_module.graph, program.graph_signature
    buffers = {spec.arg.name for spec in signature.input_specs if spec.kind.name == "BUFFER"}
    last, kept = graph.output_node(), []
    for spec, node in zip(signature.output_specs, last.args[0]):
        if spec.kind is not OutputKind.BUFFER_MUTATION:
            kept.append((spec, node))
        elif not made_of(node) <= buffers:
            raise ExportError(f"the program changes its buffer {spec.target.partition('.')[2]} by what it is given, which is not compiled with BatchNorms whose statistics are shared: train it with model.compiled = \"never\"")
    last.args = (tuple(node for _, node in kept),)
    graph.eliminate_dead_code()
    program.graph_module.recompile()
    return program._update(program.graph_module, ExportGraphSignature(signature.input_specs, [spec for spec, _ in kept]))
