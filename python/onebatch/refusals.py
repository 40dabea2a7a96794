"""What a model does that cannot be exported, in plain words, and what to write instead."""
import pathlib
import traceback

import torch
from torch import nn

OURS = pathlib.Path(__file__).resolve().parent
THEIRS = pathlib.Path(torch.__file__).resolve().parent
FIXED = ("the model takes a size that is to vary as a fixed number: write x.shape[0] (or x.size(1), …) where its code has a number, -1 in view() "
         "and reshape(), and tensors' operations instead of a loop over samples")  # fmt: skip
RECURRENT = ("PyTorch exports a recurrent layer for one length: leave that size out of `dynamic`, and pad all samples to one length")
VALUES = ("the forward decides by the numbers in a tensor (if x.sum() > 0, .item(), a loop over them): write torch.where(), or masks, instead")
SHAPES = "the model does not take inputs of these shapes: give examples as the data are, [samples, ...]"
# What torch.export says; what we say.
ADVICE = (
    ("specialized", FIXED),
    ("GuardOnDataDependent", VALUES),
    ("data-dependent", VALUES),
    ("Data-dependent", VALUES),
    ("must always be equal", "two sizes are told apart that the model takes to be equal: give them one name, as in "
     "dynamic={\"a\": {1: \"length\"}, \"b\": {1: \"length\"}}"),
    ("Constraints violated", "the model takes some of the sizes alone that are to vary: see below which, and let it take any (by padding in its "
     "forward, or by data of one size, without `dynamic`)"),
    (".numpy()", "the forward turns a tensor into a NumPy array: write what it computes there with tensors"),
    ("Expected all tensors to be on the same device", "the model and the example inputs are on unlike devices: move both to one, as by .cpu()"),
    ("must have the same dtype", "the model and the example inputs are of unlike types: give inputs of the model's, as by .float()"),
    ("must have same reduction dim", SHAPES),
    ("mat1 and mat2", SHAPES),
    ("Given groups=", SHAPES),
    ("Given normalized_shape", SHAPES),
    ("missing 1 required", "the forward takes more than was given: give a tensor for each of its arguments that has no default"),
    ("positional argument", "the forward takes other arguments than were given: give a tuple in its order, or a dictionary by its names"),
    ("unexpected keyword", "the forward has no argument of that name: give a dictionary by the names that it has"),
    ("unhashable type", "an output is no tensor: return tensors, a tuple or a dictionary of them, or a dataclass of tensors"),
    ("not a known type", "an output is no tensor: return tensors, a tuple or a dictionary of them"),
    ("not a supported", "an input or an output is no tensor: return tensors, a tuple or a dictionary of them"),
    ("Unsupported", "an input or an output is no tensor: return tensors, a tuple or a dictionary of them"),
    ("Deepcopy", "a tensor of the model is computed from its parameters when it is made: compute it in forward()"),
)  # fmt: skip
LIBRARY = ("set the model to its plain PyTorch form (in transformers: attn_implementation=\"sdpa\" or \"eager\"; in torchvision: a model without "
           "torchvision.ops)")  # fmt: skip
# Parts that torch.no_grad() and torch.autocast() make. What else takes a graph decides by values.
PARTS = ("wrap_with_set_grad_enabled", "wrap_with_autocast")


class ConversionError(Exception):
    """Data that cannot be converted; the message names the file, and says what to write instead."""


class ExportError(Exception):
    """A model that cannot be exported; the message says why, and what to write instead."""


def place_of(error):
    """The last line that is not PyTorch's: the model's own code, or that of the library that it is from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not {OURS, THEIRS} & set(pathlib.Path(frame.filename).resolve().parents) and not frame.filename.startswith("<")]
    return f" at {own[-1].filename}:{own[-1].lineno} ({own[-1].line})" if own else ""


def first_line(error):
    lines = str(error).strip().splitlines()
    first = lines[0] if lines else type(error).__name__
    if "C++ compile error" in first:  # followed by the command
        first = next((f"{first}: {line.strip()}" for line in lines if "error:" in line), first)
    return first


def first_lines(error):
    lines = list(dict.fromkeys(line.strip() for line in str(error).splitlines() if line.strip()))
    return " ".join(line.partition("For more information")[0].strip() for line in lines[:2])[:400] or type(error).__name__


def in_plain_words(error, model):
    """What torch.export has thrown, as ours."""
    text = f"{type(error).__name__}: {error}"
    advice = next((advice for words, advice in ADVICE if words in text), "look for what is not plain PyTorch in its forward")
    if advice is FIXED and any(isinstance(module, nn.RNNBase) for module in model.modules()) and "batch = " not in text:
        advice = RECURRENT
    return ExportError(f"the model cannot be exported: {advice}\n(torch.export{place_of(error)}: {first_lines(error)})")


def check_model(model):
    if isinstance(model, torch.jit.ScriptModule):
        raise ExportError("the model is TorchScript: export the nn.Module that it was made of, or write model.kind = \"torchscript\"")
    if not isinstance(model, nn.Module):
        raise ExportError(f"the model is {type(model).__name__}: give an nn.Module")
    parameters = dict(model.named_parameters())
    if not parameters:
        raise ExportError("the model has no parameters: there is nothing to train")
    lazy = [name for name, parameter in parameters.items() if isinstance(parameter, nn.parameter.UninitializedParameter)]
    if lazy:
        raise ExportError(f"the parameter {lazy[0]} has no shape yet: run the model once on a sample before exporting it")
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise ExportError("no parameter of the model requires a gradient: call requires_grad_() on those to train before exporting it")


def check_operators(program):
    for module in program.graph_module.modules():
        for node in module.graph.nodes if hasattr(module, "graph") else ():
            if node.op == "call_function":
                check_operator(node.target)


def check_operator(target):
    namespace, name = getattr(target, "namespace", "aten"), str(target)
    if namespace == "higher_order" and not any(part in name for part in PARTS):
        raise ExportError(f"the forward calls {name}, which takes a graph of its own: write torch.where() for torch.cond, and a loop of a fixed "
                          "number of turns, or a layer as nn.LSTM, for the others")  # fmt: skip
    if namespace not in ("aten", "_operator", "higher_order"):
        raise ExportError(f"the forward calls {name}, an operator of a library: {LIBRARY}")


def check_returned(program, loss):
    """That there is something to train on: with a loss of the model's own two scalars."""
    values = [node.meta.get("val") for node in program.graph.output_node().args[0] if hasattr(node, "meta")][-len(program.graph_signature.user_outputs):]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if loss is not None and (len(tensors) != 2 or any(tensor.dim() for tensor in tensors)):
        shapes = ", ".join(f"[{', '.join(str(size) if isinstance(size, int) else 'any' for size in tensor.shape)}]" for tensor in tensors) or "no tensor"
        raise ExportError(f"the loss returns {shapes}: return two scalars, the *sum* over the samples (reduction=\"sum\") and its weight, as in "
                          "return F.cross_entropy(output, target, reduction=\"sum\"), torch.ones_like(target, dtype=output.dtype).sum()")  # fmt: skip
    if not any(tensor.is_floating_point() for tensor in tensors):
        raise ExportError("the model returns no tensor of floating point numbers: return what a loss is computed of")
