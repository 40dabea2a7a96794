#!/usr/bin/env python3
"""precision.channels_last against PyTorch in channels_last and in the ordinary order, in float64: ResNet-8 under local, synchronised and exact BatchNorm, built in, scripted and traced; recomputation; runs that go on in the other order; models that cannot be had in it."""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from common import CifarResNet, batches_of, configuration, digits, onebatch, relative_l2, report, scratch

PROGRAM = sys.argv[1]
STEPS, BATCH = 6, 24
CONFIG = configuration("""
[run]
max_steps = {steps}
[batch]
global_batch_size = 24
micro_batch_size = {micro}
[data]
kind = "idx"
path = "data/digits"
[data.validation]
kind = "idx"
[model]
{model}
[optimizer]
kind = "adamw"
lr = 0.01
weight_decay = 0.1
[precision]
channels_last = {order}
[batch_norm]
mode = "{mode}"
[memory]
recompute = {recompute}
[checkpoint]
resume = "auto"
[probe]
max_trials = 3
""").replace('kind = "torchscript"\npath = "{folder}/model.pt"\n', "")
BUILT_IN = 'kind = "resnet"\ndepth = 8\nstem = "cifar"\nweights = "{folder}/weights.safetensors"'
SAVED = 'kind = "torchscript"\npath = "{folder}/model.pt"'
# ranks, micro-batches, BatchNorm's mode: each the gradient of one batch
CASES = [(1, "24", "local"), (2, "12", "sync"), (2, "[7, 3]", "exact")]


class Flat(CifarResNet):
    """Its head takes what lies behind each other in memory."""

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.contiguous().view(x.shape[0], 64, -1).mean(2))


class NeedsRows(CifarResNet):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64 * 4, 10)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.view(x.shape[0], 256))


class AsksForOrder(CifarResNet):
    """Another function of images in another order, as nothing but a test is: it shows that they are."""

    def forward(self, x):
        x = self.layer2(self.layer1(self.bn1(self.conv1(x)).relu()))
        scale = 1.0 if x.is_contiguous() else 2.0
        return self.fc(nn.functional.adaptive_avg_pool2d(self.layer3(x), 1).flatten(1)) * scale


def make(kind):
    torch.manual_seed(4)
    return kind()


def save(how, model, folder):
    """Returns the lines of [model]."""
    if how == "built in":
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, folder / "weights.safetensors")
        return BUILT_IN.format(folder=folder)
    model.train()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    saved = torch.jit.script(model) if how == "scripted" else torch.jit.trace(model, digits(torch.float32)[0][:4], check_trace=False)
    saved.load_state_dict(state)
    model.load_state_dict(state)
    saved.save(str(folder / "model.pt"))
    return SAVED.format(folder=folder)


def write(folder, how, kind, order, micro="24", mode="local", recompute='"off"', steps=STEPS):
    config = folder / "c.toml"
    config.write_text(CONFIG.format(folder=folder, model=save(how, make(kind), folder), order=order, micro=micro, mode=mode, recompute=recompute, steps=steps))
    return config


def plain_loop(kind, batches, memory_format):
    """One whole batch a step; the first gradient, and what the optimizer has made of all."""
    model = make(kind).double().train().to(memory_format=memory_format)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    images, labels = digits(torch.float64)
    first = None
    for indices in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[indices].to(memory_format=memory_format)), labels[indices]).backward()
        first = first or {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
        optimizer.step()
    state = {f"{key}.{name}": optimizer.state[parameter][key] for name, parameter in model.named_parameters() for key in ("exp_avg", "exp_avg_sq")}
    return first, {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}, state


def against_pytorch(how, kind, ranks, micro, mode, recompute='"off"'):
    with scratch() as folder:
        folder = pathlib.Path(folder)
        config = write(folder, how, kind, "true", micro, mode, recompute)
        gradients = {}
        for order in ("true", "false"):
            onebatch(PROGRAM, ranks, ["verify", config, "--save-gradient", folder / f"{order}.safetensors", "--set", f"precision.channels_last={order}", "--json", folder / "v.json"])
            gradients[order] = load_file(folder / f"{order}.safetensors")
            assert json.loads((folder / "v.json").read_text())["batch_norm"] == mode
        onebatch(PROGRAM, ranks, ["train", config, "--quiet"])
        batches = batches_of(folder / "run")
        assert len(batches) == STEPS
        checkpoint = folder / "run" / "checkpoints" / "latest"
        ours, state = load_file(checkpoint / "model.safetensors"), load_file(checkpoint / "optimizer.safetensors")
    between = relative_l2(gradients["true"], gradients["false"])
    first, weights, moments = plain_loop(kind, batches, torch.channels_last)
    errors = relative_l2(gradients["true"], first), relative_l2(ours, weights), relative_l2(state, moments)
    good = between <= 1e-13 and errors[0] <= 1e-13 and max(errors) <= 1e-9
    return report(good, f"{kind.__name__} {how}, {mode}, {ranks} rank(s), recompute {recompute}: gradient {between:.1e} off the ordinary order's, {errors[0]:.1e} off PyTorch's; after {STEPS} steps weights {errors[1]:.1e}, moments {errors[2]:.1e}")


def goes_on_in_the_other_order(before, after):
    with scratch() as folder:
        folder = pathlib.Path(folder)
        onebatch(PROGRAM, 1, ["train", write(folder, "built in", CifarResNet, before, steps=3), "--quiet"])
        said = onebatch(PROGRAM, 1, ["train", write(folder, "built in", CifarResNet, after)])
        batches = batches_of(folder / "run")
        checkpoint = folder / "run" / "checkpoints" / "latest"
        ours, state = load_file(checkpoint / "model.safetensors"), load_file(checkpoint / "optimizer.safetensors")
    _, weights, moments = plain_loop(CifarResNet, batches, torch.contiguous_format)
    errors = relative_l2(ours, weights), relative_l2(state, moments)
    good = len(batches) == STEPS and max(errors) <= 1e-9 and "precision.channels_last" in said
    return report(good, f"three steps with {before}, three with {after}: weights {errors[0]:.1e}, moments {errors[1]:.1e}; the difference is said", said)


def evaluates_alike():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        config = write(folder, "built in", CifarResNet, "true", steps=2)
        onebatch(PROGRAM, 1, ["train", config, "--quiet"])
        losses = []
        for order in ("true", "false"):
            onebatch(PROGRAM, 1, ["eval", config, "--set", f"precision.channels_last={order}", "--checkpoint", folder / "run", "--json", folder / "e.json"])
            losses.append(json.loads((folder / "e.json").read_text())["validation_loss"])
    return report(abs(losses[0] - losses[1]) <= 1e-12 * losses[1], f"eval in both orders: {losses[0]:.15g}, {losses[1]:.15g}")


def refused(how, kind, words):
    with scratch() as folder:
        folder = pathlib.Path(folder)
        config = write(folder, how, kind, "true", steps=1)
        out = onebatch(PROGRAM, 1, ["train", config, "--quiet"], expect=(2,))
        onebatch(PROGRAM, 1, ["train", config, "--quiet", "--set", 'precision.channels_last="auto"'])
    return report(all(word in out for word in words), f"{kind.__name__} {how} is refused in it, and trains without", out)


def main():
    failures = 0
    for case in CASES:
        failures += against_pytorch("built in", CifarResNet, *case)
    failures += against_pytorch("scripted", CifarResNet, 2, "[7, 3]", "exact")
    failures += against_pytorch("traced", Flat, 1, "24", "local")
    failures += against_pytorch("traced", Flat, 2, "12", "sync")
    failures += against_pytorch("built in", CifarResNet, 1, "24", "local", recompute="3")
    failures += goes_on_in_the_other_order("true", "false")
    failures += goes_on_in_the_other_order('"auto"', "true")
    failures += evaluates_alike()
    failures += refused("traced", NeedsRows, ("precision.channels_last = true", "aten::view", "view size is not compatible", ".reshape"))
    failures += refused("scripted", AsksForOrder, ("precision.channels_last = true", "the gradient of a few samples differs by"))
    return failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
