"""A backward that computes activations again, instead of keeping them: less memory for more time."""
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .activations import Cuts, Joint, bytes_of, is_inlined, is_tensor, maker_of, memory_of


def has_a_first_number(node):
    """Whether it is of floating type, and none of its sizes can be 0."""
    return is_tensor(node) and node.meta["val"].is_floating_point() and all(statically_known_true(size >= 1) for size in node.meta["val"].shape)


def order_to_tie(node):
    """Small ones first; of truth values what is last."""
    return node.meta["val"].dtype is torch.bool, bytes_of(node)


class Copies:
    """What is not kept, computed again in front of its first reader in the backward.

    The compiler would take a copy for its original, or run it early. Therefore an argument of each chain of copies is multiplied by a token: 1, but computed of the loss and the
    last gradient before the piece's first copy."""

    def __init__(self, joint, cuts):
        self.joint, self.graph, self.cuts = joint, joint.graph, cuts.least()
        kept, behind = {node for place in self.cuts for node in cuts.alive(place)}, range(max(self.cuts, default=-1) + 1, len(joint.forward))
        owners = ((node, memory_of(node)) for node in joint.activations)
        self.again = {node for node, owner in owners if joint.is_worth_it(owner) and kept.isdisjoint((owner, maker_of(owner))) and joint.place[owner] not in behind}
        self.copies, self.products, self.tokens, self.piece, self.gradient = {}, {}, {}, None, joint.root

    def make(self):
        for node in self.joint.nodes:
            if node.op != "call_function" or node not in self.joint.gradients:
                continue
            for missing in self.missing(node):
                self.copy(missing, node)
            node.args, node.kwargs = self.mapped(node, self.copies)
            if has_a_first_number(node):
                self.gradient = node

    def mapped(self, node, others):
        return (torch.fx.node.map_arg(given, lambda one: others.get(one, one)) for given in (node.args, node.kwargs))

    def missing(self, reader):
        found, stack = set(), list(reader.all_input_nodes)
        while stack:
            node = stack.pop()
            if node in self.again and node not in found and node not in self.copies:
                found.add(node)
                stack.extend(node.all_input_nodes)
        return sorted(found, key=self.joint.place.get)

    def copy(self, node, reader):
        place = self.joint.place[node]
        if place < len(self.joint.forward):
            self.piece = sum(cut < place for cut in self.cuts)
        elif self.piece is None:
            return  # what the backward computes of what is behind the last cut
        given = {one: self.copies[one] for one in node.all_input_nodes if one in self.copies}
        with self.graph.inserting_before(reader):
            given.update((one, self.product(one)) for one in self.to_be_tied(node, given))
            copy = self.graph.create_node(node.op, node.target, *self.mapped(node, given), node.name + "_again")
        copy.meta = dict(node.meta)
        self.copies[node] = copy

    def to_be_tied(self, node, given):
        """One argument, if none is a copy, which all have a token; where the compiler may rearrange the arguments first, all activations."""
        able = [one for one in node.all_input_nodes if one not in given and is_tensor(one)]
        moved = [] if is_inlined(node) else [one for one in able if one in self.joint.activations]
        return moved if moved or given else [min(able, key=order_to_tie)]

    def product(self, node):
        """With the token."""
        if (node, self.piece) not in self.products:
            value = node.meta["val"]
            one = self.call(torch.ops.aten.scalar_tensor.default, (1,), {"dtype": value.dtype, "device": value.device})
            token = self.call(torch.ops.aten.where.self, (self.is_number(), one, one))
            self.products[node, self.piece] = self.call(torch.ops.aten.mul.Tensor, (node, token))
        return self.products[node, self.piece]

    def is_number(self):
        """What the piece's tokens are computed of."""
        if self.piece not in self.tokens:
            first = self.gradient
            for _ in first.meta["val"].shape:
                first = self.call(torch.ops.aten.select.int, (first, 0, 0))
            number = self.call(torch.ops.aten.add.Tensor, (first, self.joint.loss))
            self.tokens[self.piece] = self.call(torch.ops.aten.eq.Tensor, (number, number))
        return self.tokens[self.piece]

    def call(self, target, args, kwargs=None):
        node = self.graph.call_function(target, args, kwargs)
        with self.joint.loss.meta["val"].fake_mode:
            node.meta["val"] = target(*torch.fx.node.map_arg(args, lambda one: one.meta["val"]), **node.kwargs)
        return node


def recompute(program):
    """Lets the backward of `program`, which is as joint() gives it, compute most activations again. Changes it in place; its inputs and outputs and their order stay."""
    joint = Joint(program)
    Copies(joint, Cuts(joint)).make()
    joint.graph.eliminate_dead_code()
    joint.graph.lint()
    program.graph_module.recompile()
