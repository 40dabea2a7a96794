"""Numbers of the data that choose rows of a table: one that is outside of it ends the call of native code, as LibTorch ends an operator's. The code's own test of it, on a CPU, stands in a loop of OpenMP, which
no exception leaves: it would end the process."""
import torch

aten = torch.ops.aten
WHOLE = (torch.int64, torch.int32)


@torch.library.custom_op("onebatch::inside", mutates_args=())
def inside(indices: torch.Tensor, least: int, end: int) -> torch.Tensor:
    """The same numbers. The trainer has it, too."""
    if indices.numel() > 0 and not (least <= indices.min() and indices.max() < end):
        raise IndexError(f"index out of range in self: {indices.min()} to {indices.max()}, where {least} to {end - 1} are")
    return indices.clone()


@inside.register_fake
def _(indices, least, end):
    return torch.empty_like(indices)


def indexed(node):
    """(place among the arguments, index, least, end) of each index of an operator that chooses rows."""
    if node.target is aten.embedding.default:
        yield (1,), node.args[1], 0, node.args[0].meta["val"].shape[0]
    elif node.target is aten.gather.default:
        yield (2,), node.args[2], 0, node.args[0].meta["val"].shape[node.args[1]]
    elif node.target is aten.index.Tensor:
        for place, index in enumerate(node.args[1]):
            if index is not None:
                size = node.args[0].meta["val"].shape[place]
                yield (1, place), index, -size, size


def of_the_data(program):
    """Whole numbers that are made of inputs that are whole numbers."""
    found, given = set(), set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype in WHOLE and (node.name in given or found & set(node.all_input_nodes)):
            found.add(node)
    return found


def with_index(args, place, index):
    changed = list(args)
    changed[place[0]] = index if len(place) == 1 else with_index(args[place[0]], place[1:], index)
    return changed


def checked_indices(program):
    """Of a graph as InRun has it. Changes it; returns it."""
    graph, checked, data = program.graph_module.graph, {}, of_the_data(program)
    for node in list(graph.nodes):
        for place, index, least, end in indexed(node):
            if index not in data or not isinstance(end, int) or index.meta["val"].dtype not in WHOLE:
                continue
            if (index, least, end) not in checked:
                with graph.inserting_before(node):
                    checked[index, least, end] = graph.call_function(torch.ops.onebatch.inside.default, (index, least, end))
                checked[index, least, end].meta["val"] = torch.empty_like(index.meta["val"])
            node.args = tuple(with_index(node.args, place, checked[index, least, end]))
    graph.lint()
    program.graph_module.recompile()
    return program
