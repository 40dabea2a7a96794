"""A TorchScript archive and data made in Python, trained by the program: what the oracles of such models share."""
import json
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn

from common import batches_of, configuration, loaded, onebatch, report

CONFIG = configuration("""
[run]
max_steps = {steps}
[batch]
global_batch_size = {batch}
micro_batch_size = {micro}
[data]
{data}
{validation}
[model]
{weights}
[optimizer]
lr = {rate}
[precision]
compute = "{precision}"
parameters = "{precision}"
[batch_norm]
{batch_norm}
[checkpoint]
resume = "never"
[probe]
cache = false
max_trials = 3
[loss]
{loss}
{more}
""")
VALIDATION = '[data.validation]\npath = "{folder}/validation.safetensors"'
RATE = 0.05


def archive(model, how, example, extra=None):
    """Scripts or traces without moving the model's buffers."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    made = torch.jit.script(model) if how == "script" else torch.jit.trace(model, example, check_trace=False)
    for target in (model, made):
        target.load_state_dict(state, strict=False)
    return made, extra or {}


class Trial:
    """A folder with a model, its data and a configuration."""

    def __init__(self, program, folder, made, inputs, targets, validation=None, **settings):
        self.program, self.folder = program, pathlib.Path(folder)
        module, extra = made
        torch.jit.save(module, str(self.folder / "model.pt"), _extra_files=extra)
        save_file({"x": inputs.contiguous(), "y": targets.contiguous()}, self.folder / "data.safetensors")
        if validation:
            save_file({"x": validation[0].contiguous(), "y": validation[1].contiguous()}, self.folder / "validation.safetensors")
        self.settings = {"steps": 2, "batch": len(targets), "micro": 3, "data": "", "weights": "", "rate": RATE, "precision": "float64", "batch_norm": "", "loss": "", "more": "",
                         "validation": VALIDATION.format(folder=self.folder) if validation else "", **settings}

    def _config(self, settings):
        path = self.folder / "c.toml"
        path.write_text(CONFIG.format(folder=self.folder, **{**self.settings, **settings}))
        return path

    def train(self, ranks=1, expect=(0,), **settings):
        """What the program says; `weights` and `result` are the run's."""
        said = onebatch(self.program, ranks, ["train", self._config(settings), "--quiet", "--json", self.folder / "train.json"], expect=expect)
        if expect != (0,):
            return said
        self.result = json.loads((self.folder / "train.json").read_text())
        run = pathlib.Path(self.result["run_dir"])
        self.file = max((run / "checkpoints").glob("step-*"), key=lambda path: int(path.name.split("-")[1])) / "model.safetensors"
        self.weights = loaded(self.file)
        self.batches = batches_of(run)
        return said

    def gradient(self, ranks=1, expect=(0,), **settings):
        onebatch(self.program, ranks, ["verify", self._config(settings), "--save-gradient", self.folder / "g.safetensors", "--quiet"], expect=expect)
        return loaded(self.folder / "g.safetensors")


def sgd(model, inputs, targets, batches, rate=RATE, loss=nn.functional.cross_entropy):
    """Plain steps of whole batches; the first batch's gradient."""
    first = None
    for batch in batches:
        model.zero_grad()
        loss(model(inputs[batch]), targets[batch]).backward()
        first = first or {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= rate * parameter.grad
    return first


class Report:
    """Counts what was found to be wrong."""

    def __init__(self):
        self.failures = 0

    def check(self, good, what, said=""):
        self.failures += report(good, what, said)
