"""The zoo's models in a run's own modes, each against eager PyTorch's gradient of the whole batch at once, or against the run without the mode:

- exact BatchNorm on two uneven ranks, float64: at most 1e-13 apart, or twice what the samples' order alone changes in PyTorch's own gradient;
- recomputed in three segments, two steps of training: weights and buffers of the same bits in float32;
- bfloat16 on two uneven ranks: at most twice as far from float64 as PyTorch's autocast of the whole batch is;
- dropout on one rank and on three: the same masks, which drop.

zoo.py PROGRAM --modes runs them, --modes exact recomputed those two.
"""
import contextlib
import copy
import json
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from common import configuration, loaded, onebatch, relative_l2

SAMPLES = 7
SPLITS = {1: str(SAMPLES), 2: "[2, 3]", 3: "[1, 3, 2]"}
LIMIT, TIMES, SHOWS = 1e-13, 2.0, 1e-3
RATE = 1e-3
SECONDS = 1800  # of a command, with the largest models on a busy machine
DROPOUTS = ("dropout", "attn_dropout", "attention_dropout", "activation_dropout")  # attributes with a probability
CONFIG = configuration("""
[run]
max_steps = 2
device = "cpu"
[batch]
global_batch_size = {samples}
micro_batch_size = {micro}
[data]
inputs = {inputs}
target = "y"
[model]
kind = "exported"
path = "{program}"
[loss]
kind = "mse"
[optimizer]
kind = "{optimizer}"
lr = {rate}
[precision]
compute = "{compute}"
parameters = "{parameters}"
[batch_norm]
mode = "{batch_norm}"
[memory]
recompute = {recompute}
[checkpoint]
resume = "never"
[probe]
cache = false
max_trials = 3
""")


def without_paths_dropped(model):
    """What is compared with eager PyTorch draws nothing."""
    for part in model.modules():
        if type(part).__name__ == "StochasticDepth":
            part.p = 0.0
        for name in ("drop_prob", "drop_path_rate", "layerdrop"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
    return model


def with_dropout(model):
    """Dropouts that are off by default are on, and paths are dropped where bernoulli_ draws them. None where it has neither."""
    found = 0
    for name, part in without_paths_dropped(model).named_modules():
        for kind in DROPOUTS:
            if isinstance(getattr(part, kind, None), float) and not (isinstance(part, nn.RNNBase) and part.num_layers == 1):
                setattr(part, kind, getattr(part, kind) or 0.1)
                found += 1
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = part.p or 0.1
            found += 1
        if type(part).__name__ == "StochasticDepth":
            part.p = 0.1
            found += 1
        if type(part).__name__ == "DropPath" and type(part).__module__.startswith("timm."):
            part.drop_prob = 0.1
            found += 1
    return model if found else None


class Modes:
    """A folder with the data of a model."""

    def __init__(self, program, folder, model, given):
        self.program, self.folder, self.model = str(program), pathlib.Path(folder), model
        self.by_name = isinstance(given, dict)
        self.inputs = given if self.by_name else {f"x{i}": tensor for i, tensor in enumerate(given)}
        self.targets = torch.zeros(())
        self.targets = torch.randn(self.output_of(model, torch.float32).shape)
        save_file({**{name: tensor.contiguous() for name, tensor in self.inputs.items()}, "y": self.targets}, self.folder / "data.safetensors")

    def output_of(self, model, dtype, order=slice(None)):
        from zoo import logits_of
        given = {name: tensor[order].to(dtype if tensor.is_floating_point() else tensor.dtype) for name, tensor in self.inputs.items()}
        return logits_of(model(**given) if self.by_name else model(*given.values()))[0]

    def eager(self, autocast=False, order=slice(None)):
        """PyTorch's gradient of the whole batch: in float64, or by autocast to bfloat16."""
        from zoo import InFloat64
        dtype = torch.float32 if autocast else torch.float64
        model = copy.deepcopy(self.model).to(dtype).train()
        with torch.autocast("cpu", torch.bfloat16) if autocast else InFloat64():
            output = self.output_of(model, dtype, order)
        F.mse_loss(output.to(dtype), self.targets[order].to(dtype)).backward()
        return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}

    def config(self, file, ranks=1, compute="float64", parameters="", batch_norm="exact", recompute='"off"', optimizer="adamw"):
        path = self.folder / "c.toml"
        path.write_text(CONFIG.format(folder=self.folder, samples=SAMPLES, micro=SPLITS[ranks], inputs=json.dumps(list(self.inputs)), program=file, rate=RATE, compute=compute,
                                      parameters=parameters or compute, batch_norm=batch_norm, recompute=recompute, optimizer=optimizer))
        return path

    def gradient(self, file, ranks=1, **settings):
        saved = self.folder / "gradient.safetensors"
        config = self.config(file, ranks, optimizer="sgd", **settings)  # a state of the optimizer is two more copies of the weights on each rank, and no gradient depends on it
        onebatch(self.program, ranks, ["verify", config, "--save-gradient", saved, "--quiet"], expect=(0, 5), seconds=SECONDS)  # 5: it does not pass by its own measure
        return loaded(saved)

    def trained(self, file, **settings):
        """Weights and buffers after two steps."""
        said = self.folder / "train.json"
        onebatch(self.program, 1, ["train", self.config(file, batch_norm="local", **settings), "--quiet", "--json", said], seconds=SECONDS)
        return loaded(pathlib.Path(json.loads(said.read_text())["run_dir"]) / "checkpoints" / "step-2" / "model.safetensors")


# Each mode: whether it is as wanted, and what was found. `plain`: the program without dropouts; `drops`: the one with, or None.

def exact(modes, plain, drops):
    truth = modes.eager()
    order = relative_l2(modes.eager(order=torch.arange(SAMPLES).flip(0)), truth)
    error = relative_l2(modes.gradient(plain, 2), truth)
    return error <= max(LIMIT, TIMES * order), f"{error:.0e}" if error <= LIMIT else f"{error:.0e} (order alone {order:.0e})"


def recomputed(modes, plain, drops):
    kept, again = (modes.trained(drops or plain, compute="float32", recompute=segments) for segments in ('"off"', "3"))
    if all(torch.equal(again[name], kept[name]) for name in kept):
        return True, "same bits"
    return False, f"{relative_l2(again, kept):.0e}"


def bfloat16(modes, plain, drops):
    truth = modes.eager()
    ours = relative_l2(modes.gradient(plain, 2, compute="bfloat16", parameters="float32"), truth)
    own = relative_l2(modes.eager(autocast=True), truth)
    return ours <= TIMES * own, f"{ours / own:.2f} ({ours:.1e})"


def dropout(modes, plain, drops):
    if drops is None:
        return True, "has none"
    one, three = modes.gradient(drops, 1), modes.gradient(drops, 3)
    order = relative_l2(modes.eager(order=torch.arange(SAMPLES).flip(0)), modes.eager())
    error, dropped = relative_l2(three, one), relative_l2(one, modes.gradient(plain, 1))
    return error <= max(LIMIT, TIMES * order) and dropped >= SHOWS, f"{error:.0e}" if dropped >= SHOWS else f"{error:.0e}, but drops nothing ({dropped:.0e})"


MODES = {"exact": exact, "recomputed": recomputed, "bfloat16": bfloat16, "dropout": dropout}
TITLES = {"exact": "exact BatchNorm, 2 ranks", "recomputed": "recomputed", "bfloat16": "bfloat16, over autocast's error", "dropout": "dropout, 3 ranks and 1"}


def modes_of(names, program, model, given, plain, drops, folder):
    """The row of a model in the modes of these names: {mode: [whether as wanted, what was found]}."""
    modes, found = Modes(program, folder, model, given), {}
    for name in names:
        try:
            found[name] = MODES[name](modes, plain, drops)
        except SystemExit as error:  # the program's refusal
            found[name] = False, " ".join(str(error).split())[-300:]
    return found
