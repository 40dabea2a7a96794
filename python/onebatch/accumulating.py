"""Gradients that the graph itself adds to the sums which it is given, instead of returning them: they are never in memory all together."""
import collections

import torch
from torch._export.verifier import TrainingIRVerifier
from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec, TensorArgument
from torch.fx.experimental.symbolic_shapes import statically_known_true

aten = torch.ops.aten
SCATTERS = (aten.index_put.default, aten._unsafe_index_put.default)


@torch.library.custom_op("onebatch::add_product", mutates_args=("summed",))
def add_product(summed: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> None:
    """The trainer has it, too: a matrix product goes where it belongs without a pass of its own."""
    torch.addmm(summed, one, other, out=summed)


@add_product.register_fake
def _(summed, one, other):
    pass


@torch.library.custom_op("onebatch::add_rows", mutates_args=("summed",))
def add_rows(summed: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> None:
    """The trainer has it, too, for a CPU: what the compiler makes of such a sum adds number by number, by atomics, which take longer than all around them."""
    summed.index_put_((rows,), values, accumulate=True)


@add_rows.register_fake
def _(summed, rows, values):
    pass


def is_of_rows(summed, indices, values):
    """Whether the values are, for each index, a row of the sum, which lies in host memory."""
    if summed.meta["val"].device.type != "cpu" or len(indices) != 1 or indices[0].meta["val"].dtype not in (torch.int64, torch.int32):
        return False
    wanted, found = [*indices[0].meta["val"].shape, *summed.meta["val"].shape[1:]], values.meta["val"].shape
    return len(wanted) == len(found) and all(statically_known_true(one == other) for one, other in zip(wanted, found))


def without_moves(node):
    """What the node is of which its permutations, that nobody else reads, leave all dimensions where they were, one after the other; else the node."""
    order, source = list(range(node.meta["val"].dim())), node
    while source.target is aten.permute.default and len(source.users) == 1:
        order = [source.args[1][place] % len(order) for place in order]
        source = source.args[0]
        if order == sorted(order):
            return source
    return node


def is_zeros(node):
    return node.target is aten.full.default and node.args[1] == 0


class Adding:
    """Of gradients to their sums, of which they have the shape."""

    def __init__(self, graph, gradients):
        self.graph, self.counts = graph, collections.Counter(gradients)

    def added(self, summed, gradient):
        """The sum with the gradient, part by part where it is of several, as that of tied weights."""
        parts = [gradient]
        while parts:
            part = parts.pop()
            source = without_moves(part) if self.counts[part] < 2 else part
            if self.is_of_parts(summed, source):
                parts.extend(reversed(source.args))
            else:
                summed = self.with_part(summed, source)
        return summed

    def is_alone(self, summed, source):
        """Nobody else reads it, and it is as exact as the sum."""
        return len(source.users) == 1 and self.counts[source] < 2 and not source.kwargs and source.meta["val"].dtype == summed.meta["val"].dtype

    def is_of_parts(self, summed, source):
        alike = (isinstance(part, torch.fx.Node) and part.meta["val"].shape == summed.meta["val"].shape for part in source.args)
        return source.target is aten.add.Tensor and self.is_alone(summed, source) and all(alike)

    def with_part(self, summed, source):
        if self.is_alone(summed, source) and source.target is aten.mm.default:
            self.call(summed, torch.ops.onebatch.add_product.default, summed, *source.args)
            return summed
        if self.is_alone(summed, source) and source.target in SCATTERS and len(source.args) == 4 and source.args[3] and is_zeros(source.args[0]):
            # Nothing as large as an embedding's table is made.
            if not is_of_rows(summed, *source.args[1:3]):
                return self.call(summed, source.target, summed, *source.args[1:])
            self.call(summed, torch.ops.onebatch.add_rows.default, summed, *source.args[1], source.args[2])
            return summed
        return self.call(summed, aten.add.Tensor, summed, source)

    def call(self, summed, target, *args):
        made = self.graph.call_function(target, args)
        made.meta = {"val": summed.meta["val"]}
        return made


def accumulate(program, sums):
    """Of a graph as joint() gives it. `sums`: {parameter: the name of the input that its gradient is added to}. Changes it; returns the program that does that."""
    graph, specs = program.graph_module.graph, program.graph_signature.output_specs
    last, named = graph.output_node(), {node.name: node for node in graph.nodes}
    adding = Adding(graph, last.args[0])
    changed, returned = [], []
    for spec, node in zip(specs, last.args[0]):
        if spec.kind is not OutputKind.GRADIENT_TO_PARAMETER:
            (changed if spec.kind is OutputKind.BUFFER_MUTATION else returned).append((spec, node))
            continue
        before = named[sums[spec.target]]
        with graph.inserting_before(node.next):
            after = adding.added(before, node)
        if after is not before:
            changed.append((OutputSpec(OutputKind.USER_INPUT_MUTATION, TensorArgument(after.name), before.name), after))
    last.args = (tuple(node for _, node in changed + returned),)
    graph.eliminate_dead_code()
    graph.lint()
    program.graph_module.recompile()
    return program._update(program.graph_module, ExportGraphSignature(program.graph_signature.input_specs, [spec for spec, _ in changed + returned]), verifiers=[TrainingIRVerifier])


def overwritten(program, sums):
    """Of a graph as accumulate() returns it: the places of the sums to which a matrix product is added, and nothing else. Without what is there before they are that product."""
    named = {node.name: node for node in program.graph_module.graph.nodes}
    users = [list(named[name].users) for name in sums.values()]
    return [place for place, own in enumerate(users) if [user.target for user in own] == [torch.ops.onebatch.add_product.default]]
