"""Native code that tells of sums to which it adds nothing more while the rest of it runs: the trainer sends them on."""
import contextlib

import torch
from torch._inductor import compile_fx
from torch.library import custom_op

from .activations import bytes_of, memory_of

BYTES = 1 << 20  # that are told of together, at the least

aten = torch.ops.aten


@custom_op("onebatch::are_final", mutates_args=("sums",))
def are_final(sums: list[torch.Tensor], places: list[int]) -> None:
    """Sums, and which of all they are. The trainer has it, too: it writes nothing, and runs after what does."""


@are_final.register_fake
def _(sums, places):
    pass


def written_by(node):
    """What an operator writes to, of its arguments."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    return [given for one, given in zip(schema.arguments, node.args) if one.alias_info is not None and one.alias_info.is_write and isinstance(given, torch.fx.Node)]


def last_writes(graph, sums):
    """{sum: node}. Each sum that is copied to is so as soon as what is copied is whole, which others may have written to where it lies."""
    found, copies, places = {}, [], {node: place for place, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.target is not aten.copy_.default or node.args[0] not in sums:
            found.update((memory_of(given), node) for given in written_by(node))
        elif memory_of(node.args[1]) is not node.args[0]:
            copies.append(node)
    for copy in copies:
        value = copy.args[1]
        max(value, found.get(memory_of(value), value), key=places.get).append(copy)
        found[copy.args[0]] = copy
    return {given: node for given, node in found.items() if given in sums}


def announce(graph, sums):
    """Tells of the sums, inputs of the graph, in groups. What is left at the end is told by the end. Changes the graph."""
    writes, places = last_writes(graph, set(sums)), {node: place for place, node in enumerate(graph.nodes)}
    group = []
    for given in sorted(writes, key=lambda one: places[writes[one]]):
        group.append(given)
        if sum(map(bytes_of, group)) < BYTES:
            continue
        with graph.inserting_after(writes[given]):
            told = graph.call_function(torch.ops.onebatch.are_final.default, (group, [sums.index(one) for one in group]))
        told.meta["val"] = None
        group = []


@contextlib.contextmanager
def announced(signature, first, number):
    """After its own passes the compiler's graph is announce()d: before them an operator that writes would be in the way of those that write in place. Of its inputs `number` are sums, from
    the place `first` on."""
    before = compile_fx.post_grad_passes

    def passes(module, is_inference):
        before(module, is_inference)
        inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        if len(inputs) != len(signature.user_inputs):  # of a part of it
            return
        announce(module.graph, inputs[first : first + number])
        module.graph.lint()
        module.recompile()

    compile_fx.post_grad_passes = passes
    try:
        yield
    finally:
        compile_fx.post_grad_passes = before
