"""Models as programs of torch.export, for model.kind = "exported"."""
import contextlib
import io
import logging
import pathlib
import sys
import warnings

import torch
from torch import nn
from torch.export.dynamic_shapes import refine_dynamic_shapes_from_suggested_fixes
from torch.fx.experimental.symbolic_shapes import is_concrete_int

from . import checking, inputs as taken
from .files import replacing
from .refusals import ExportError, check_model, check_operators, check_returned, in_plain_words


def bare(model):
    """Without what runs it in other ways, which would put a word before every parameter's name."""
    while True:
        if hasattr(model, "_orig_mod"):  # torch.compile
            model = model._orig_mod
        elif isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        else:
            return model


@contextlib.contextmanager
def forward_of(model, forward):
    """The model itself is exported, so that its parameters keep their names."""
    had_own = "forward" in vars(model)
    before = vars(model).get("forward")
    model.forward = forward
    try:
        yield
    finally:
        if had_own:
            model.forward = before
        else:
            del model.forward


@contextlib.contextmanager
def for_training(model):
    """Every part in training mode, and without Hugging Face's caches of generation; afterwards as it was."""
    modes = [(module, module.training) for module in model.modules()]
    configs = {id(config): config for module in model.modules() if getattr(config := getattr(module, "config", None), "use_cache", None) is True}
    evaluated = [name for name, module in model.named_modules() if name and not module.training]
    if model.training and evaluated:
        warnings.warn(f"{evaluated[0]} is in eval() mode: it is exported in training mode as all others; write batch_norm.frozen = true, or call "
                      "requires_grad_(False) on what is not to be trained", stacklevel=4)  # fmt: skip
    model.train()
    for config in configs.values():
        config.use_cache = False
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for config in configs.values():
            config.use_cache = True


def bounds(shapes):
    """{name: Dim} of what varies."""
    return {dim.__name__: dim for own in shapes for dim in own.values()}


def refined(shapes, error):
    """Where the model takes some lengths alone (up to its positions', say), those; None where it takes one alone, or not every batch."""
    suggested = str(error).partition("Suggested fixes:")[2].partition("\n\n")[0]
    if not suggested:
        return None
    try:
        other = refine_dynamic_shapes_from_suggested_fixes("Suggested fixes:" + suggested, shapes)
    except Exception:  # it suggests what it cannot follow itself
        return None
    sizes = [size for own in other for size in own.values()]
    batches = [own[0] for own in other]
    if other == shapes or any(isinstance(size, int) for size in sizes) or any(not isinstance(size, torch.export.Dim) for size in batches):
        return None
    if any(batch.__name__ != taken.BATCH for batch in batches):
        return None
    least = {name: dim.min for name, dim in bounds(shapes).items()}  # a suggestion names no least size where it changes the largest
    return tuple({place: at_least(dim, least.get(dim.__name__, 1)) for place, dim in own.items()} for own in other)


def at_least(dim, least):
    """One that is made of another (twice a number) stays as it is."""
    return torch.export.Dim(dim.__name__, min=max(dim.min, least), max=dim.max) if type(dim) is torch.export.Dim else dim


@contextlib.contextmanager
def quietly():
    """Beside what it throws, torch.export logs whole graphs, and prints them. What it says of what it has exported is shown."""
    before, said = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(said):
            yield
        sys.stderr.write(said.getvalue())
    finally:
        logging.disable(before)


def once(model, examples, shapes):
    with quietly():
        return torch.export.export(model, examples, dynamic_shapes=shapes, strict=False)


def traced(model, examples, shapes):
    """The program, and the sizes that it takes."""
    for attempt in range(3):
        try:
            return once(model, examples, shapes), shapes
        except ExportError:
            raise
        except Exception as error:  # torch.export has many kinds
            narrower = refined(shapes, error) if attempt < 2 else None
            if narrower is None:
                return traced_freely(model, examples, shapes, in_plain_words(error, model)), shapes
            shapes = narrower


def traced_freely(model, examples, shapes, refusal):
    """Where PyTorch does not see that what it has found out of a length holds for all (as min(8 n, 16 n) = 8 n): without that being proven. The check
    tries other ones."""
    if all(list(own) == [0] for own in shapes):
        raise refusal
    try:
        program = once(model, examples, tuple({place: torch.export.Dim.AUTO if place else dim for place, dim in own.items()} for own in shapes))
    except Exception:
        raise refusal from None
    taken_sizes = [node.meta["val"].shape for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    if any(is_concrete_int(sizes[place]) for sizes, own in zip(taken_sizes, shapes) for place in own):
        raise refusal
    return program


def say_narrower(asked, found):
    """Once for each name."""
    for name, dim in bounds(asked).items():
        now = next(other[place] for own, other in zip(asked, found) for place, one in own.items() if one.__name__ == name)
        if now.__name__ != name:
            warnings.warn(f"the model takes a {name} of {now.__name__} alone: data of other sizes are refused", stacklevel=3)
        elif (now.min, now.max) != (dim.min, dim.max):
            warnings.warn(f"the model takes a {name} of {now.min} to {now.max} alone: data of other sizes are refused", stacklevel=3)


def export(model, example_inputs, path, dynamic=None, loss=None, targets=None, check=True, compile=False):
    """Writes `model` as a program that onebatch trains (model.kind = "exported", model.path = path).

    example_inputs: a tuple of tensors [samples, ...], or a dictionary of them by the names of the forward's arguments, in the order of
        data.inputs. Their values do not matter; the first dimension of each becomes any batch, and what `dynamic` names any size:
        {"tokens": {1: "length"}}.
    loss: folded into the program: called with the model's output and `targets` (a tuple of example tensors: the target, and weights where
        there are any), it returns two scalars, the *sum* of the loss and its weight. Then write loss.kind = "model".
    check: run the file against the model on two other batch sizes, in float64: outputs, gradients and buffers. It needs the program
        `onebatch` (the wheel's, one in PATH, or named by the variable ONEBATCH).
    compile: make native code of it for this CPU, too, for model.compiled: in float32, with `loss`, or else of cross entropy without smoothing. Where that is refused the
        program stays written.

    What a Hugging Face model returns is unpacked to its logits. The model is exported in training mode and is afterwards as it was. Returns
    the path. Raises ExportError, which says in plain words what cannot be exported and what to write instead, and CheckFailed; then no file
    is written.
    """
    path, model = pathlib.Path(path), bare(model)
    check_model(model)
    if (loss is None) != (targets is None):
        raise ExportError("loss and targets come together: give example targets, as in targets=(labels,)")
    targets = (targets,) if isinstance(targets, torch.Tensor) else tuple(targets or ())
    inputs = taken.named_inputs(model, example_inputs)
    names = taken.target_names(targets, inputs)
    whole = {**inputs, **dict(zip(names, targets))}
    taken.check_tensors(whole)
    asked = taken.dynamic_shapes(whole, dynamic or {})
    examples = {name: taken.enlarged(tensor, own) for (name, tensor), own in zip(whole.items(), asked)}

    def forward_for(module):
        return taken.stand_in(module.forward, list(inputs), taken.by_keyword(example_inputs), names, loss)

    with for_training(model):
        with forward_of(model, forward_for(model)):
            program, shapes = traced(model, tuple(examples.values()), asked)
        check_operators(program)
        check_returned(program, loss)
        say_narrower(asked, shapes)
        with replacing(path) as partial:
            torch.export.save(program, str(partial))
            if check:
                try:
                    checking.compare(model, forward_for, examples, shapes, program, partial)
                except checking.CannotCheck as reason:
                    warnings.warn(f"the exported file was not checked against the model: {reason}", stacklevel=2)
    if compile:
        from .compiling import CROSS_ENTROPY, compile_program

        compile_program(path, loss=None if loss else CROSS_ENTROPY)
    return path
