"""A program as it evaluates: nothing is dropped, and BatchNorms normalise by their running statistics."""
import torch
from torch import nn
from torch.utils import _pytree as pytree

from .keyed import REPLACED, Draws, Keyed, Norms, check_sizes, name_of
from .refusals import ExportError

SWITCHES = {"batch_norm": ("training", "running_mean"), "instance_norm": ("use_input_stats", "running_mean")}  # off where there are such statistics
MODES = ("training", "train", "use_input_stats")


def place_of(target, argument):
    return next(place for place, one in enumerate(target._schema.arguments) if one.name == argument)


class Evaluating(Keyed):
    """Runs a program's graph in evaluation, as the trainer's own does."""

    def call_function(self, target, args, kwargs):
        name = name_of(target)
        if name.rstrip("_") in REPLACED:
            return args[0]
        if target is torch.ops.aten.bernoulli_.float and args[0].dim() > 0:  # divided by it afterwards: every path is what it is
            return args[0].fill_(args[1] if len(args) > 1 else kwargs.get("p", 0.5))
        if name.rstrip("_") == "add" and self.counts_batches(args[0]):
            return args[0]
        if name == "scaled_dot_product_attention":
            args, kwargs = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args, kwargs | ({"dropout_p": 0.0} if "dropout_p" in kwargs else {})
        elif name in SWITCHES:
            switch, statistics = (place_of(target, one) for one in SWITCHES[name])
            if args[statistics] is not None:
                args = (*args[:switch], False, *args[switch + 1 :])
        elif isinstance(target, torch._ops.OpOverload):
            refuse_other_modes(name, target, args, kwargs)
        return super().call_function(target, args, kwargs)

    def counts_batches(self, counter):
        """By a number, wherever in the program."""
        return id(counter) in self.norms.counters and not (isinstance(self.node.args[1], torch.fx.Node) and self.node.args[1].op == "call_function")


class Counted(Norms):
    """And the buffers in which they count their batches."""

    def __init__(self, program):
        super().__init__()
        self.counters = {id(tensor) for name, tensor in program.named_buffers() if name.endswith("num_batches_tracked")}


def refuse_other_modes(name, target, args, kwargs):
    """Recurrent layers drop nothing where that was compiled to train: what else has two modes is not known here."""
    given = {one.name: value for one, value in zip(target._schema.arguments, args)} | kwargs
    drops = {given.get("p", 0.0), given.get("dropout", 0.0)} - {0.0}
    if any(given.get(mode) is True for mode in MODES) and ("dropout" not in given or drops):
        raise ExportError(f"the program calls {name}, whose evaluation is not compiled yet")


class EvaluatedProgram(nn.Module):
    """The program's inputs to its output of that number, or, where that is None, to the loss's sum and weight."""

    def __init__(self, program, before, after, varying, autocast, chosen):
        super().__init__()
        self.program, self.before, self.after, self.varying, self.autocast, self.chosen = program, before, after, varying, autocast, chosen

    def forward(self, *inputs):
        samples = torch.arange(inputs[0].shape[0], device=inputs[0].device)
        check_sizes(samples.shape[0], inputs, self.varying)
        program = Evaluating(self.program, Draws(samples, None), self.before, self.after, Counted(self.program))
        with torch.autocast(samples.device.type, dtype=self.autocast, enabled=self.autocast is not None, cache_enabled=False):
            returned = [one for one in pytree.tree_leaves(program.run(*inputs)) if isinstance(one, torch.Tensor) or self.chosen is not None]
        return tuple(returned) if self.chosen is None else (returned[self.chosen],)
