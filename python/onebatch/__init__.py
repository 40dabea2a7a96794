"""Models, data and checkpoints between PyTorch in Python and the onebatch trainer.

    onebatch.export(model, (images,), "model.pt2")          a program that the trainer runs: model.kind = "exported"
    onebatch.save_dataset("train.safetensors", x=…, y=…)    data that it reads: data.kind = "safetensors"
    model.load_state_dict(onebatch.load_checkpoint("runs/name"))

Training needs no Python; this package is for what comes before and after it.
"""
import importlib

_PLACES = {"CheckFailed": "checking", "compile_program": "compiling", "ExportError": "refusals", "export": "exporting", "load_checkpoint": "checkpoints", "save_dataset": "datasets"}
__all__ = list(_PLACES)


def __getattr__(name):
    """Found when it is asked for: the command `onebatch` is started without waiting for PyTorch."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_PLACES[name]}", __name__), name)


def __dir__():
    return sorted({*globals(), *__all__})
