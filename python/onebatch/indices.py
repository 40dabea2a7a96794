"""Numbers of the data that choose rows of a table: one that is outside of it ends the call of native code, as LibTorch ends an operator's. The code's own test of it, on a CPU, stands in a loop of OpenMP, which
no exception leaves: it would end the process."""
import torch
from torch.export.graph_signature import OutputKind

aten = torch.ops.aten
WHOLE = (torch.int64, torch.int32)
BY_DIMENSION = {aten.gather.default, aten.index_select.default, aten.scatter.src, aten.scatter.value, aten.scatter_add.default, aten.scatter_reduce.two}
BY_DIMENSIONS = {aten.index.Tensor, aten.index_put.default}
MOVES = {aten.expand.default, aten.unsqueeze.default, aten.view.default, aten._unsafe_view.default, aten.permute.default}  # of the same numbers


@torch.library.custom_op("onebatch::inside", mutates_args=())
def inside(indices: torch.Tensor, least: int, end: int) -> torch.Tensor:
    """The same numbers. The trainer has it, too."""
    if indices.numel() > 0 and not (least <= indices.min() and indices.max() < end):
        raise IndexError(f"index out of range in self: {indices.min()} to {indices.max()}, where {least} to {end - 1} are")
    return indices.clone()


@inside.register_fake
def _(indices, least, end):
    return torch.empty_like(indices)


def sizes_of(node):
    return node.meta["val"].shape


def indexed(node):
    """(place among the arguments, index, least, end) of each index of an operator that reads or writes rows."""
    if node.target is aten.embedding.default:
        yield (1,), node.args[1], 0, sizes_of(node.args[0])[0]
    elif node.target in BY_DIMENSION and sizes_of(node.args[0]):
        yield (2,), node.args[2], 0, sizes_of(node.args[0])[node.args[1]]
    elif node.target in BY_DIMENSIONS and all(index is None or index.meta["val"].dtype in WHOLE for index in node.args[1]):  # no masks, which stand for several
        for place, index in enumerate(node.args[1]):
            if index is not None:
                size = sizes_of(node.args[0])[place]
                yield (1, place), index, -size, size


def of_the_data(program):
    """What is made of the inputs, or of their sizes."""
    found, given = set(), set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        if node.name in given or found & set(node.all_input_nodes):
            found.add(node)
    return found


def of_the_forward(program):
    """The nodes up to the loss: what the backward looks up the forward has looked up before."""
    last = {spec.arg.name for spec in program.graph_signature.output_specs if spec.kind is OutputKind.LOSS_OUTPUT}
    for node in list(program.graph.nodes):
        yield node
        if node.name in last:
            return


def with_index(args, place, index):
    changed = list(args)
    changed[place[0]] = index if len(place) == 1 else with_index(args[place[0]], place[1:], index)
    return changed


class Checking:
    """Each index once, before what moves its numbers: that may make many of them."""

    def __init__(self, graph):
        self.graph, self.checked = graph, {}

    def checked_before(self, node, index, least, end):
        key = index, least, end
        if key in self.checked:
            return self.checked[key]
        if index.target in MOVES:
            made = self.checked_before(node, index.args[0], least, end), *index.args[1:]
            target, value = index.target, index.meta["val"]
        else:
            made, target, value = key, torch.ops.onebatch.inside.default, torch.empty_like(index.meta["val"])
        with self.graph.inserting_before(node):
            self.checked[key] = self.graph.call_function(target, made)
        self.checked[key].meta["val"] = value
        return self.checked[key]


def checked_indices(program):
    """Of a graph as InRun has it. Changes it; returns it."""
    checking, data = Checking(program.graph_module.graph), of_the_data(program)
    for node in of_the_forward(program):
        for place, index, least, end in indexed(node):
            if index in data and isinstance(end, int):
                node.args = tuple(with_index(node.args, place, checking.checked_before(node, index, least, end)))
    checking.graph.lint()
    program.graph_module.recompile()
    return program
