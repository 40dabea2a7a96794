"""Models by name, of the libraries that people take them from, or of a file of one's own: each with example inputs and what varies in them."""
import importlib
import importlib.util
import pathlib
import sys
from functools import partial

import torch

from .refusals import ExportError

SAMPLES = 4
LENGTH = 16
SIDE = 224
TASKS = {"sequence-classification": "AutoModelForSequenceClassification", "token-classification": "AutoModelForTokenClassification",
         "causal-lm": "AutoModelForCausalLM", "masked-lm": "AutoModelForMaskedLM", "image-classification": "AutoModelForImageClassification"}  # fmt: skip
TASK = "sequence-classification"  # where none is given
# What each option is of.
OPTIONS = {"--classes": "models of torchvision, timm and transformers that tell classes apart", "--pretrained": "models of torchvision, timm and transformers",
           "--shape": "models of torchvision and timm, and of transformers with --task image-classification", "--task": "models of transformers"}  # fmt: skip


def check_options(given, *taken):
    """An option that such a source does not take would change nothing."""
    values = {"--classes": given.classes, "--pretrained": given.pretrained, "--shape": given.shape, "--task": given.task != TASK}
    for option, of in OPTIONS.items():
        if values[option] and option not in taken:
            task = f" with --task {given.task}" if "--task" in taken else ""
            raise ExportError(f"{option} is of {of}, and changes nothing of {given.source}{task}: leave it out")


def library(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ExportError(f"{name} cannot be imported here ({error}): pip install {name.partition('.')[0]}") from None


def made(what, make):
    """What a library says of a name that it does not know, or of weights that it cannot get."""
    try:
        return make()
    except Exception as error:
        raise ExportError(f"{what}: {type(error).__name__}: {error}") from error


def images(shape):
    return (torch.randn(SAMPLES, *shape),)


def from_torchvision(name, given):
    check_options(given, "--classes", "--pretrained", "--shape")
    models = library("torchvision.models")
    if given.pretrained and given.classes:
        raise ExportError("torchvision's weights have classes of their own: leave out --classes or --pretrained, or write my_module.py:build, which "
                          "puts a layer of your own in the place of the last one")  # fmt: skip
    classes = {"num_classes": given.classes} if given.classes else {}
    model = made(f"torchvision makes no {name}", lambda: models.get_model(name, weights="DEFAULT" if given.pretrained else None, **classes))
    return model, images(given.shape or [3, 224, 224]), {}


def from_timm(name, given):
    check_options(given, "--classes", "--pretrained", "--shape")
    timm = library("timm")
    classes = {"num_classes": given.classes} if given.classes else {}
    model = made(f"timm makes no {name}", lambda: timm.create_model(name, pretrained=given.pretrained, **classes))
    shape = list(model.default_cfg["input_size"])
    if given.shape and given.shape[1:] != shape[1:] and model.default_cfg.get("fixed_input_size"):  # made for one size, which is to be another
        size = {"img_size": tuple(given.shape[1:])}
        model = made(f"timm makes no {name} of {given.shape[1:]}", lambda: timm.create_model(name, pretrained=given.pretrained, **classes, **size))
    return model, images(given.shape or shape), {}


def image_shape(config):
    """[channels, height, width] as a model of transformers is made for; where it does not say, it takes any, as ResNet."""
    config = getattr(config, "vision_config", config)
    size = getattr(config, "image_size", None) or SIDE
    return [getattr(config, "num_channels", 3), *(size if isinstance(size, (list, tuple)) else (size, size))]


def from_transformers(name, given):
    of_task = {"image-classification": ("--classes", "--shape"), "causal-lm": (), "masked-lm": ()}.get(given.task, ("--classes",))
    check_options(given, "--pretrained", "--task", *of_task)
    transformers = library("transformers")
    auto = getattr(transformers, TASKS[given.task])
    classes = {"num_labels": given.classes} if given.classes else {}

    def make():
        if given.pretrained:
            return auto.from_pretrained(name, **classes)
        return auto.from_config(transformers.AutoConfig.from_pretrained(name, **classes))

    model = made(f"transformers makes no {name}", make)
    if given.task == "image-classification":
        return model, {"pixel_values": torch.randn(SAMPLES, *(given.shape or image_shape(model.config)))}, {}
    tokens = torch.randint(0, model.config.vocab_size, (SAMPLES, LENGTH))
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    return model, inputs, {name: {1: "length"} for name in inputs}


class OwnCodeError(ExportError):
    """What a file of one's own has raised. That is its cause, with a traceback of their code alone."""


def of_own_code(file, run):
    try:
        return run()
    except Exception as error:
        place = error.__traceback__.tb_next
        while place is not None and place.tb_frame.f_code.co_filename.startswith("<frozen importlib"):
            place = place.tb_next
        error.__traceback__ = place
        raise OwnCodeError(f"that {type(error).__name__} is from {file}, and nothing is exported: mend it there") from error


def from_file(source, given):
    file, _, function = source.rpartition(":")
    if not pathlib.Path(file).is_file():
        raise ExportError(f"{file} is no file: write my_module.py:build, where build() returns a model and example inputs")
    check_options(given)
    name = pathlib.Path(file).stem
    spec = importlib.util.spec_from_file_location(name if name not in sys.modules else f"onebatch_source_{name}", file)  # a library's name stays the library's
    if spec is None:
        raise ExportError(f"{file} is no file of Python: its name is to end in .py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look for it there
    sys.path.insert(0, str(pathlib.Path(file).resolve().parent))
    of_own_code(file, partial(spec.loader.exec_module, module))
    if not callable(getattr(module, function, None)):
        raise ExportError(f"{file} has no function {function}()")
    returned = of_own_code(file, getattr(module, function))
    if not isinstance(returned, tuple) or len(returned) not in (2, 3):
        raise ExportError(f"{source} returns {type(returned).__name__}: return model, example_inputs, or model, example_inputs, dynamic")
    return returned if len(returned) == 3 else (*returned, {})


LIBRARIES = {"torchvision": from_torchvision, "timm": from_timm, "transformers": from_transformers}


def from_source(source, given):
    """The model, example inputs, and what varies."""
    kind, _, name = source.partition(":")
    if not name:
        raise ExportError(f"{source} is no source: write torchvision:NAME, timm:NAME, transformers:NAME or FILE.py:FUNCTION")
    return LIBRARIES[kind](name, given) if kind in LIBRARIES else from_file(source, given)
