"""Which activations of a graph of forward and backward are worth keeping, where the others are computed again."""
import itertools
import math
import operator

import torch

from .refusals import ExportError
from .shared_norms import shares_sums

KEPT_OF = 32  # a value so many times smaller than what it is computed of is kept, as a norm's statistics are
TRIES = 24  # to halve the range that the least peak lies in
SLACK = 16  # by a part so small the peak may be higher where less is computed again


def maker_of(node):
    """The operator that returns the value with several others, else the node itself."""
    return node.args[0] if node.target is operator.getitem else node


def memory_of(node):
    """The value whose memory this one may be: operators in place and views give back their first argument's."""
    maker = maker_of(node)
    schema = getattr(maker.target, "_schema", None)
    aliases = schema is not None and schema.arguments and schema.arguments[0].alias_info is not None
    return memory_of(maker.args[0]) if aliases and isinstance(maker.args[0], torch.fx.Node) else node


def is_tensor(node):
    return isinstance(node.meta.get("val"), torch.Tensor)


def bytes_of(node):
    """Of the sizes that the program was exported with."""
    if not is_tensor(node):
        return 0
    tensor = node.meta["val"]
    return math.prod(size.node.hint if isinstance(size, torch.SymInt) else size for size in tensor.shape) * tensor.element_size()


def has(node, *tags):
    return any(tag in getattr(node.target, "tags", ()) for tag in tags)


def is_random(node):
    """Attention is by its tag, but not where its dropout is 0."""
    if not has(node, torch.Tag.nondeterministic_seeded):
        return False
    arguments = node.target._schema.arguments
    given = {one.name: one.default_value for one in arguments} | {one.name: value for one, value in zip(arguments, node.args)} | node.kwargs
    return given.get("dropout_p") != 0.0


def is_inlined(node):
    """Whether the compiler computes it where it is read, and what it reads too."""
    return node.target in (operator.getitem, torch.ops.aten._to_copy.default) or memory_of(node) is not node or has(node, torch.Tag.pointwise, torch.Tag.reduction)


class Joint:
    """A graph's nodes as those of the forward and those of the backward."""

    def __init__(self, program):
        self.graph, signature = program.graph_module.graph, program.graph_signature
        self.nodes = list(self.graph.nodes)
        self.place = {node: place for place, node in enumerate(self.nodes)}
        named = {node.name: node for node in self.nodes}
        wanted = {named[spec.arg.name] for spec in signature.output_specs if spec.kind.name == "GRADIENT_TO_PARAMETER"}
        self.loss = next(named[spec.arg.name] for spec in signature.output_specs if spec.kind.name == "LOSS_OUTPUT")
        ones = (node for node in self.nodes[self.place[self.loss] :] if node.target is torch.ops.aten.full.default and node.args == ([], 1))
        begun = ((one, self.reached_from([one])) for one in ones)
        self.root, self.gradients = next(((one, reached) for one, reached in begun if not wanted.isdisjoint(reached)), (None, None))
        if self.root is None:
            raise ExportError("where the gradient begins is not found in this program, so that nothing can be computed again: compile it without recompute")
        self.activations = self.reached_from(named[name] for name in signature.user_inputs) - self.gradients  # and what the backward computes of them alone
        self.forward = self.nodes[: self.place[self.root]]

    def reached_from(self, nodes):
        found = set(nodes)
        for node in self.nodes:
            if node.op == "call_function" and not found.isdisjoint(node.all_input_nodes):
                found.add(node)
        return found

    def is_worth_it(self, node):
        """Whether it is an activation that can be computed again, and has memory of its own that is worth it."""
        maker = maker_of(node)
        if node not in self.activations or node.op != "call_function" or memory_of(node) is not node or maker.is_impure(impure_random=False) or is_random(maker) or shares_sums(maker):
            return False
        if not any(map(is_tensor, maker.all_input_nodes)):
            return False  # of sizes alone: the compiler fills it in where it is read
        if not is_tensor(node):
            return isinstance(node.meta.get("val"), (tuple, list))  # not a size
        if self.place[node] >= len(self.forward):
            return True
        return bytes_of(node) * KEPT_OF > max((bytes_of(source) for source in maker.all_input_nodes if source in self.activations), default=0)


class Cuts:
    """Places in the forward with little alive across them, which is kept: between two of them all is computed again, and after the last one nothing.

    A place is that of the node before it."""

    def __init__(self, joint):
        self.made_at, self.read_at, whole = {}, {}, set()
        for node in joint.forward:
            owners = [owner for owner in map(memory_of, node.all_input_nodes) if joint.is_worth_it(owner)]
            for owner in owners:  # what an operator returns several of is there when it has run
                self.made_at[owner] = joint.place[maker_of(owner)]
                self.read_at[owner] = joint.place[node]  # in the end by the last reader
            if not is_inlined(node):
                whole.update(owners, filter(joint.is_worth_it, (node, *(part for part in node.users if part.target is operator.getitem))))
        self.places = [-1, *self.narrow(len(joint.forward)), len(joint.forward) - 1]
        across = [[(self.made_at[node], bytes_of(node)) for node in self.alive(place)] for place in self.places]
        self.added = [[sum(size for place, size in kept if place > before) for kept in across] for before in self.places]  # what the second cut keeps and the first does not
        self.inside = self.bytes_inside([bytes_of(node) if node in whole else 0 for node in joint.forward])

    def bytes_inside(self, sizes):
        """[start][how many places further it ends, less one]: what lies in memory of a piece, with two gradients as large as its largest value."""
        parts = [sizes[start + 1 : end + 1] for start, end in itertools.pairwise(self.places)]
        sums, largest = [sum(part) for part in parts], [max(part, default=0) for part in parts]
        return [[made + 2 * most for made, most in zip(itertools.accumulate(sums[start:]), itertools.accumulate(largest[start:], max))] for start in range(len(parts))]

    def narrow(self, count):
        """Where less is alive than before, and more soon after."""
        changes = [0] * count
        for node, last in self.read_at.items():
            changes[self.made_at[node]] += bytes_of(node)
            changes[last] -= bytes_of(node)
        falling, found = False, []
        for place, change in enumerate(changes):
            if change > 0 and falling:
                found.append(place - 1)
            falling = change < 0 or falling and change == 0
        return found

    def alive(self, place):
        return [node for node, last in self.read_at.items() if self.made_at[node] <= place < last]

    def least(self):
        """The places of cuts with about the lowest peak: of what is kept up to a piece, and what lies in the piece."""
        low, high = 0, self.inside[0][-1]
        for _ in range(TRIES):
            peak = (low + high) // 2
            low, high = (peak, high) if self.below(peak) is None else (low, peak)
        return self.below(high + high // SLACK)

    def below(self, peak):
        """Of the cuts with no higher peak those that keep little, and behind which most is made; None where there are none."""
        last = len(self.places) - 1
        kept, before = [0] + [math.inf] * last, {}
        for end in range(1, last + 1):
            fitting = [start for start in range(end) if kept[start] + self.inside[start][end - start - 1] <= peak]
            if fitting:
                before[end] = fitting[0] if end == last else min(fitting, key=lambda start: kept[start] + self.added[start][end])
                kept[end] = kept[before[end]] + self.added[before[end]][end]
        path = [last]
        while path[-1] in before:
            path.append(before[path[-1]])
        return None if path[-1] else [self.places[at] for at in path[-2:0:-1]]
