#!/usr/bin/env python3
"""Parameters that are not row-major (channels_last, transposed, with gaps) against PyTorch's optimizers on the same module: ranks, uneven micro-batches, clipping, a resume, all optimizers, masters; and what shares memory is refused by name."""
import pathlib
import sys

import torch
from safetensors.torch import load_file
from torch import nn

from common import batches_of, configuration, digits, onebatch, report, scratch

PROGRAM = sys.argv[1]
STEPS = 6
CONFIG = configuration("""
[run]
max_steps = {steps}
deterministic = {deterministic}
[batch]
global_batch_size = 40
micro_batch_size = {micro}
[data]
kind = "idx"
path = "data/digits"
[optimizer]
kind = {optimizer}
max_grad_norm = 0.5
[precision]
compute = "{precision}"
parameters = "{precision}"
[checkpoint]
resume = "auto"
[probe]
max_trials = 3
[simulate]
devices = [{{slowdown = 1.0}}, {{slowdown = 2.5}}]
""")
OPTIMIZERS = {
    "sgd": ('"sgd"\nlr = 0.1\nmomentum = 0.9\nweight_decay = 0.01', lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01)),
    "adam": ('"adam"\nlr = 0.01\nweight_decay = 0.1', lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1)),
    "adamw": ('"adamw"\nlr = 0.01\nweight_decay = 0.1', lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1)),
}
STATE = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq", "momentum_buffer": "momentum_buffer"}


class Odd(nn.Module):
    """Convolutions in channels_last, one of them grouped, a transposed linear weight, a bias that is every second element of another tensor."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 9, 3, 2, 1, groups=3)
        self.middle, self.head = nn.Linear(9 * 16, 20), nn.Linear(20, 10)
        self.to(memory_format=torch.channels_last)
        self.middle.weight = nn.Parameter(self.middle.weight.detach().t().contiguous().t())
        self.head.bias = nn.Parameter(torch.linspace(-0.5, 0.5, 20)[::2])

    def forward(self, x):
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        return self.head(torch.relu(self.middle(x.flatten(1))))


class Expanded(Odd):
    def __init__(self):
        super().__init__()
        self.head.bias = nn.Parameter(torch.zeros(1).expand(10))


class Overlapping(Odd):
    def __init__(self):
        super().__init__()
        memory = torch.randn(29) / 10
        self.middle.bias, self.head.bias = nn.Parameter(memory[:20]), nn.Parameter(memory[19:])


class Apart(Odd):
    """Two parameters in one memory, none of whose elements is the other's."""

    def __init__(self):
        super().__init__()
        memory = torch.randn(40) / 10
        self.middle.bias, self.head.bias = nn.Parameter(memory[::2]), nn.Parameter(memory[1:20:2])


def make(kind):
    torch.manual_seed(7)
    return kind()


def error_of(ours, reference, start=None):
    """Relative to the reference, or to how far it has gone from `start`."""
    error = sum(((ours[k].double() - reference[k].double()) ** 2).sum().item() for k in reference)
    norm = sum(((reference[k].double() - (start[k].double() if start else 0.0)) ** 2).sum().item() for k in reference)
    return (error / norm) ** 0.5


def plain_loop(kind, make_optimizer, batches, dtype):
    """The module's own layout, one whole batch a step."""
    model = make(kind).to(dtype)
    optimizer = make_optimizer(model.parameters())
    images, labels = digits(dtype)
    for indices in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[indices]), labels[indices]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    state = {f"{key}.{name}": optimizer.state[parameter][key] for name, parameter in model.named_parameters() for key in optimizer.state[parameter] if key in STATE}
    return model.state_dict(), state


def loop_with_masters(kind, make_optimizer, batches, dtype):
    """Short parameters, float32 masters that the optimizer works on."""
    model = make(kind).to(dtype)
    masters = [nn.Parameter(parameter.detach().float()) for parameter in model.parameters()]
    optimizer = make_optimizer(masters)
    images, labels = digits(dtype)
    for indices in batches:
        model.zero_grad()
        nn.functional.cross_entropy(model(images[indices]).float(), labels[indices]).backward()
        for master, parameter in zip(masters, model.parameters()):
            master.grad = parameter.grad.float()
        nn.utils.clip_grad_norm_(masters, 0.5)
        optimizer.step()
        with torch.no_grad():
            for master, parameter in zip(masters, model.parameters()):
                parameter.copy_(master)
    return {name: master.detach() for (name, _), master in zip(model.named_parameters(), masters)}


def trained(folder, kind, ranks, optimizer, precision, steps=(STEPS,), micro="[7, 3]", deterministic="false", expect=(0,)):
    torch.jit.script(make(kind)).save(str(folder / "model.pt"))
    config = folder / "c.toml"
    out = ""
    for step in steps:
        config.write_text(CONFIG.format(folder=folder, optimizer=OPTIMIZERS[optimizer][0], precision=precision, steps=step, micro=micro if ranks == 2 or micro[0] != "[" else 7, deterministic=deterministic))
        out = onebatch(PROGRAM, ranks, ["train", config, "--quiet"], expect=expect)
    if expect != (0,):
        return out
    checkpoint = folder / "run" / "checkpoints" / "latest"
    batches = batches_of(folder / "run")
    assert len(batches) == STEPS, len(batches)
    return load_file(checkpoint / "model.safetensors"), load_file(checkpoint / "optimizer.safetensors"), batches


def against_plain_loop(kind, optimizer, ranks, **how):
    with scratch() as folder:
        ours, state, batches = trained(pathlib.Path(folder), kind, ranks, optimizer, "float64", **how)
    weights, moments = plain_loop(kind, OPTIMIZERS[optimizer][1], batches, torch.float64)
    errors = error_of(ours, weights), error_of(state, moments)
    return report(max(errors) <= 1e-12, f"{kind.__name__} {optimizer} {ranks} rank(s) {how or ''}: weights {errors[0]:.1e}, optimizer state {errors[1]:.1e}")


def against_masters(optimizer, ranks):
    with scratch() as folder:
        _, state, batches = trained(pathlib.Path(folder), Odd, ranks, optimizer, "bfloat16", micro="20")
    masters = loop_with_masters(Odd, OPTIMIZERS[optimizer][1], batches, torch.bfloat16)
    start = {name: parameter.detach() for name, parameter in make(Odd).named_parameters()}
    error = error_of({name: state["master." + name] for name in masters}, masters, start)
    # Two micro-batches of 20 in bfloat16 and one of 40 round differently; a layout that is mistaken is off by more than 1.
    return report(error <= 0.1, f"masters of bfloat16, {optimizer} {ranks} rank(s): {error:.1e} of the way that they have gone")


def refused(kind, words):
    with scratch() as folder:
        out = trained(pathlib.Path(folder), kind, 1, "sgd", "float64", expect=(2,))
    return report(all(word in out for word in words), f"{kind.__name__} is refused by name" + ("" if all(word in out for word in words) else ": " + out))


def main():
    failures = 0
    for optimizer in OPTIMIZERS:
        for ranks in (1, 2):
            failures += against_plain_loop(Odd, optimizer, ranks)
        failures += against_masters(optimizer, 2)
    failures += against_plain_loop(Odd, "adamw", 2, deterministic='"bitwise"', micro="10")
    failures += against_plain_loop(Odd, "adam", 2, steps=(3, STEPS))
    failures += against_plain_loop(Apart, "adam", 1)
    failures += refused(Expanded, ("head.bias", "expand"))
    failures += refused(Overlapping, ("middle.bias", "head.bias", "share memory"))
    return failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
