"""An exported file against the model that it was made of: the program's own C++ code runs it."""
import contextlib
import copy
import os
import pathlib
import shutil
import subprocess
import tempfile

import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from . import program
from .files import read_tensors, write_tensors
from .inputs import BATCH
from .refusals import first_lines

BATCHES = (3, 5)
LIMIT = 1e-9  # relative L2, float64
ERRORS = (RuntimeError, ValueError, IndexError, AssertionError, TypeError)  # of a forward
SEEDED = torch.Tag.nondeterministic_seeded
# What onebatch computes of whole numbers in the run's type (gives_quotients() in exported_compiler.cpp).
OF_WHOLE_NUMBERS = {f"aten::{name}" for name in ("mul", "div", "true_divide", "add", "sub", "rsub", "pow", "sqrt", "rsqrt", "exp", "exp2", "log", "log2",
                                                 "sin", "cos", "reciprocal", "sigmoid", "tanh")}  # fmt: skip
PHASES = ("train", "training", "dropout_p")  # arguments that the program sets by the phase
PROBABILITIES = ("p", "dropout", "dropout_p")  # arguments that switch such a call off at 0


class CheckFailed(Exception):
    """A file that does not compute what the model does."""


class CannotCheck(Exception):
    """There is no program that could, or nothing that it could be compared with."""


def argument(node, name):
    """Of a call, by the operator's own name for it; None where it is left out."""
    if name in node.kwargs:
        return node.kwargs[name]
    place = next((i for i, own in enumerate(node.target._schema.arguments) if own.name == name), len(node.args))
    return node.args[place] if place < len(node.args) else None


def has(node, *names):
    return any(own.name in names for own in node.target._schema.arguments)


def follows_phase(node):
    """Whether the program draws there in training alone."""
    return has(node, *PHASES) or str(node.target) == "aten.bernoulli_.float"


def never_draws(node):
    return has(node, *PHASES) and (any(has(node, name) and not argument(node, name) for name in PROBABILITIES)
                                   or any(argument(node, name) is False for name in PHASES))  # fmt: skip


def draws(exported):
    """The calls that make a forward in training another each time, also those within no_grad() and autocast()."""
    nodes = [node for module in exported.graph_module.modules() if hasattr(module, "graph") for node in module.graph.nodes]
    return [node for node in nodes if node.op == "call_function" and SEEDED in getattr(node.target, "tags", ()) and not never_draws(node)]


def of_size(tensor, sizes, names):
    """An example of other sizes, of the same kind of values: rows and columns of it, repeated."""
    for place, dim in names.items():
        size = sizes.get(dim.__name__, tensor.shape[place])
        tensor = tensor.index_select(place, torch.arange(size) % tensor.shape[place])
    return tensor.double() if tensor.is_floating_point() else tensor


def other_sizes(shapes, batch):
    """Of each name. Those that are made of another (twice a number) stay as they are."""
    sizes = {}
    for dim in (dim for own in shapes for dim in own.values()):
        if type(dim) is torch.export.Dim:
            sizes[dim.__name__] = min(max(batch if dim.__name__ == BATCH else 2 + batch, dim.min), dim.max)
    return sizes


class InFloat64(TorchDispatchMode):
    """Types that the forward's code names where they are the parameters' are float64: so onebatch takes an exported program's."""

    def __init__(self, own):
        super().__init__()
        self.own, self.default = own, torch.float64 if torch.get_default_dtype() == own else torch.get_default_dtype()

    def widened(self, values):
        return _pytree.tree_map_only(torch.dtype, lambda dtype: torch.float64 if dtype == self.own else dtype, values)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        args, kwargs = self.widened((args, kwargs or {}))
        return func(*args, **kwargs)


class AsWritten(InFloat64):
    """Numbers in the forward's code, as torch.tensor(0.1), have the bits that they have in the file, those of the parameters' type. So has most of
    what PyTorch makes of whole numbers, or torch.where() of two numbers."""

    def __init__(self, own):
        super().__init__(own)
        self.default = torch.get_default_dtype()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten.lift_fresh.default:
            return args[0].to(self.own).double() if args[0].dtype in (self.own, torch.float64) else args[0]
        if func is torch.ops.aten.scalar_tensor.default and kwargs.get("dtype") is not None:
            return func(*args, **kwargs)
        args, kwargs = self.widened((args, kwargs))
        made = func(*args, **kwargs)
        if not isinstance(made, torch.Tensor) or made.dtype != self.own:
            return made
        tensors = [value for value in _pytree.tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        if not tensors and any(own.name == "dtype" for own in func._schema.arguments):
            return func(*args, **{**kwargs, "dtype": torch.float64})
        if tensors and func._schema.name in OF_WHOLE_NUMBERS and not any(tensor.is_floating_point() for tensor in tensors):
            args, kwargs = _pytree.tree_map_only(torch.Tensor, torch.Tensor.double, (args, kwargs))
            return func(*args, **kwargs)
        return made


def run_eagerly(model, inputs, mode):
    """{name: tensor} of outputs, gradients and buffers."""
    model.zero_grad(set_to_none=True)
    before = torch.get_default_dtype()
    torch.set_default_dtype(mode.default)
    try:
        with mode:
            outputs = [output for output in _pytree.tree_leaves(model(*inputs)) if isinstance(output, torch.Tensor)]
            trained = [output for output in outputs if output.is_floating_point() and output.requires_grad]
            if not trained:
                raise CheckFailed("no output of the model depends on a parameter that requires a gradient: there is nothing to train")
            sum((output.double()**2).sum() for output in trained).backward()
    finally:
        torch.set_default_dtype(before)
    saved = model.state_dict()
    found = {f"output.{i}": output.detach() for i, output in enumerate(outputs) if output.is_floating_point()}
    found |= {f"gradient.{name}": parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return found | {f"buffer.{name}": buffer for name, buffer in model.named_buffers() if buffer.is_floating_point() and name in saved}


def run_file(file, inputs, phase, folder):
    given, result = folder / "inputs.safetensors", folder / "result.safetensors"
    write_tensors(given, {f"{i:03d}": tensor for i, tensor in enumerate(inputs)})
    command = [program.find(), "check", str(file), "--inputs", str(given), "--phase", phase, "--save", str(result)]
    done = subprocess.run(command, capture_output=True, text=True, env=program.environment())
    if "no command \"check\"" in done.stderr:
        raise CannotCheck(f"{program.find()} is of a version without the command check")
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().replace(str(file), "the exported file")
        raise CheckFailed(f"the model was exported, but onebatch does not run it (nothing was written; check=False writes it all the same):\n{said}")
    return read_tensors(result)


def difference(found, wanted):
    """The largest relative L2 over the kinds of results, and where; infinite where something is no number, or is missing."""
    worst, where = 0.0, ""
    for kind in ("output", "gradient", "buffer"):
        names = [name for name in wanted if name.startswith(kind + ".")]
        scale = sum(float(wanted[name].double().square().sum()) for name in names)
        for name in names:
            if name not in found:
                found_here = torch.zeros_like(wanted[name])  # a gradient of zeros may be none
            elif found[name].shape != wanted[name].shape:
                return float("inf"), name
            else:
                found_here = found[name]
            off = float((found_here.double() - wanted[name].double()).square().sum())
            relative = (off / scale)**0.5 if scale > 0 else off**0.5
            if not relative < float("inf"):
                return float("inf"), name
            if relative > worst:
                worst, where = relative, name
    return worst, where


def scratch(model):
    """Where results lie for a moment: in memory, where there is room for gradients and the like in float64."""
    needed = 4 * 8 * sum(parameter.numel() for parameter in model.parameters())
    memory = pathlib.Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > needed
    return tempfile.TemporaryDirectory(prefix="onebatch-check-", dir=memory if roomy else None)


def outputs_of(results):
    return {name: tensor for name, tensor in results.items() if name.startswith("output.")}


def wanted_of(eagerly, inputs, phase):
    """In float64, on one batch; and whether the model has drawn random numbers."""
    generator = torch.get_rng_state()
    try:
        wanted = eagerly(InFloat64)
    except ERRORS as error:
        shapes = ", ".join(str(list(tensor.shape)) for tensor in inputs)
        raise CheckFailed(f"the model itself fails in {phase}, in float64, where it is given {shapes}, made of the examples: {type(error).__name__}: {error}\n"
                          "(check=False writes the file all the same)") from error  # fmt: skip
    for name, tensor in wanted.items():
        if not tensor.isfinite().all():
            raise CheckFailed(f"the model itself gives no finite numbers in {name}, for samples like the examples: give others, as the data are")
    return wanted, not torch.equal(generator, torch.get_rng_state())


def off_by(found, wanted, phase):
    if phase == "evaluation" and len(outputs_of(found)) > len(outputs_of(wanted)):
        wanted = outputs_of(wanted)  # the heads that are there in training alone have a part in the program's gradients
    return difference(found, wanted)


def advice_on(drew, always):
    """Of a difference in evaluation."""
    if drew:
        return "; the model draws random numbers in evaluation, which the file does in training alone: write F.dropout(..., training=self.training)"
    if always:
        return (f"; the file draws random numbers in validation, too ({always[0].target}), the model in training alone: write nn.Dropout, or "
                "bernoulli_(p), which the program knows to leave out")  # fmt: skip
    return ""


def compare_once(eagerly, file, inputs, phase, always, folder):
    """`always`: calls by which the program draws random numbers in any phase."""
    wanted, drew = wanted_of(eagerly, inputs, phase)
    found = run_file(file, inputs, phase, folder)
    if drew and always:
        raise CannotCheck(f"it draws random numbers of its own in evaluation, too ({always[0].target}): onebatch runs it, and what it gives was not compared")
    worst, where = off_by(found, wanted, phase)
    if not worst <= LIMIT:
        with contextlib.suppress(CheckFailed, *ERRORS):  # then the first run is what counts
            worst, where = min((worst, where), off_by(found, eagerly(AsWritten), phase))
    if not worst <= LIMIT:
        advice = advice_on(drew, always) if phase == "evaluation" else ""
        raise CheckFailed(f"the exported file does not compute what the model does: in {phase}, for {len(inputs[0])} samples, {where} is {worst:.1e} off "
                          f"(relative L2, float64; up to {LIMIT:.0e} may be){advice}. Nothing was written; check=False writes it all the same")  # fmt: skip


def copy_of(model):
    try:
        return copy.deepcopy(model).double().cpu()
    except Exception as error:  # what cannot be copied says so in many ways
        raise CannotCheck(f"copy.deepcopy() does not take the model ({type(error).__name__}: {first_lines(error)}); where it has nn.utils.weight_norm, write "
                          "nn.utils.parametrizations.weight_norm") from error  # fmt: skip


def compare(model, forward_for, examples, shapes, exported, file):
    """Raises CheckFailed where the file does not compute what the model does, and CannotCheck where that cannot be told."""
    if program.find() is None:
        raise CannotCheck("onebatch is not in PATH (name it by the variable ONEBATCH)")
    own = next(parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
    other = copy_of(model)
    other.forward = forward_for(other)
    drawn = draws(exported)
    always = [node for node in drawn if not follows_phase(node)]
    with scratch(model) as folder:
        for batch in BATCHES:
            sizes = other_sizes(shapes, batch)
            inputs = [of_size(tensor.cpu(), sizes, names) for tensor, names in zip(examples.values(), shapes)]
            for phase in ("evaluation", "training"):
                if phase == "training" and drawn:
                    continue

                def eagerly(mode):
                    other.load_state_dict(model.state_dict())
                    other.train(phase == "training")
                    return run_eagerly(other, [tensor.clone() for tensor in inputs], mode(own))

                compare_once(eagerly, file, inputs, phase, always, pathlib.Path(folder))
