"""What a model takes and returns: names, sizes that vary, outputs unpacked."""
import dataclasses
import inspect

import torch

from .refusals import ExportError

LARGEST_BATCH = 65536
LONGEST = 1 << 20
BATCH = "batch"


def tensors_of(named):
    return {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}


def unpacked(outputs):
    """Of what a Hugging Face model returns, the logits; of a dataclass, a named tuple or a dictionary its tensors by name; anything else as it is."""
    if hasattr(outputs, "to_tuple") and hasattr(outputs, "keys"):
        tensors = tensors_of(outputs)
        found = tensors.get("logits", next((tensor for name, tensor in tensors.items() if name != "loss"), None))
        if found is None:
            raise ExportError(f"the model returns {type(outputs).__name__} without a tensor but its loss: give no labels to the model, and a loss by loss=")
        return found
    if isinstance(outputs, tuple) and hasattr(outputs, "_asdict"):
        return tensors_of(outputs._asdict())
    if dataclasses.is_dataclass(outputs):
        return tensors_of({field.name: getattr(outputs, field.name) for field in dataclasses.fields(outputs)})
    return tensors_of(outputs) if isinstance(outputs, dict) else outputs


def own_parameter_names(forward):
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in inspect.signature(forward).parameters.values() if parameter.kind in kinds]


def by_keyword(example_inputs):
    return hasattr(example_inputs, "keys")


def named_inputs(model, example_inputs):
    """{name: tensor} in the order in which the program will take them."""
    if isinstance(example_inputs, torch.Tensor):
        example_inputs = (example_inputs,)
    if by_keyword(example_inputs):
        inputs = {str(name): example_inputs[name] for name in example_inputs.keys()}
    elif isinstance(example_inputs, (tuple, list)):
        names = own_parameter_names(model.forward)
        if len(names) < len(example_inputs):
            names = [f"input_{i}" for i in range(len(example_inputs))]
        inputs = dict(zip(names, example_inputs))
    else:
        raise ExportError(f"example_inputs is {type(example_inputs).__name__}: give a tuple of tensors, or a dictionary of them")
    if not inputs:
        raise ExportError("example_inputs is empty: give a tensor for each input of the model")
    return inputs


def target_names(targets, inputs):
    """The target's, and the weights': no input has them already."""
    if len(targets) > 2:
        raise ExportError(f"targets are {len(targets)}: give the target, and weights where there are any")
    return [name if name not in inputs else f"{name}_of_loss" for name in ("target", "weights")[:len(targets)]]


def check_tensors(inputs):
    for name, tensor in inputs.items():
        if not isinstance(tensor, torch.Tensor):
            raise ExportError(f"the input {name} is {type(tensor).__name__}: give tensors alone, [samples, ...] each, and what else the forward "
                              "takes as a default of its own")  # fmt: skip
        if tensor.dim() == 0 or tensor.numel() == 0:
            raise ExportError(f"the input {name} is {list(tensor.shape)}: give a tensor of [samples, ...] that holds some")
    counts = {name: tensor.shape[0] for name, tensor in inputs.items()}
    if len(set(counts.values())) > 1:
        raise ExportError("inputs and targets have unlike numbers of samples in their first dimension: " +
                          ", ".join(f"{name} {count}" for name, count in counts.items()))  # fmt: skip


def dynamic_shapes(inputs, dynamic):
    """For torch.export: every input's first dimension is the batch, and what `dynamic` names beside it."""
    dims = {}

    def dim(name):
        if not isinstance(name, str) or not name.isidentifier():
            raise ExportError(f"dynamic: {name!r} is no name: write one such as \"length\"; the same name is the same size")
        return dims.setdefault(name, torch.export.Dim(name, min=1, max=LARGEST_BATCH if name == BATCH else LONGEST))

    unknown = [name for name in dynamic if name not in inputs]
    if unknown:
        raise ExportError(f"dynamic names the input {unknown[0]!r}, which there is not: they are {', '.join(map(repr, inputs))}")
    shapes = []
    for name, tensor in inputs.items():
        own, given = {0: dim(BATCH)}, dynamic.get(name, {})
        if not isinstance(given, dict):
            raise ExportError(f"dynamic: {name!r} is {given!r}: write which of its dimensions varies, as in {{{name!r}: {{1: \"length\"}}}}")
        for place, called in given.items():
            if not isinstance(place, int) or not -tensor.dim() < place < tensor.dim() or place == 0:
                raise ExportError(f"dynamic: {name!r} has no dimension {place} beside that of samples: it is {list(tensor.shape)}")
            own[place % tensor.dim()] = dim(called)
        shapes.append(own)
    return tuple(shapes)


def enlarged(tensor, places):
    """An example of one sample, or one element, is taken for a fixed size: it is repeated."""
    for place in places:
        if tensor.shape[place] == 1:
            tensor = torch.cat([tensor, tensor], place)
    return tensor.detach()


def stand_in(original, names, as_keywords, targets, loss):
    """A forward of tensors in their order, by these names: outputs are unpacked, a loss is behind them."""

    def forward(*tensors):
        given = tensors[:len(names)]
        outputs = unpacked(original(**dict(zip(names, given))) if as_keywords else original(*given))
        return outputs if loss is None else loss(outputs, *tensors[len(names):])

    forward.__signature__ = inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in (*names, *targets)])
    return forward
