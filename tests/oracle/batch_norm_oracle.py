#!/usr/bin/env python3
"""Exact BatchNorm against PyTorch's one batch: scripted and traced models saved from Python, 1 to 4 ranks, uneven micro-batches, an empty rank, a short last batch."""
import gzip
import json
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from common import batches_of, configuration, onebatch, relative_l2, report, scratch

PROGRAM = sys.argv[1]
SAMPLES, SIZE, CLASSES = 80, 24, 10
CONFIG = configuration("""
[run]
max_steps = {steps}
[batch]
global_batch_size = {batch}
micro_batch_size = {micro}
[data]
kind = "idx"
path = "{folder}"
[optimizer]
lr = 0.01
[batch_norm]
mode = "{mode}"
[probe]
max_trials = 3
""")


class Bottleneck(nn.Module):
    """He et al., 2016, figure 5, with the stride in the 3x3 convolution."""

    def __init__(self, before, width, stride):
        super().__init__()
        after = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Identity() if before == after and stride == 1 else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
        y += self.downsample(x)
        return self.relu(y)


class Basic(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Identity() if before == width and stride == 1 else nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    """The ImageNet stem and four stages, as torchvision's."""

    def __init__(self, block, expansion, counts):
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(1, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        stages, before = [], 64
        for stage, (width, count) in enumerate(zip((64, 128, 256, 512), counts)):
            for i in range(count):
                stages.append(block(before, width, 2 if stage > 0 and i == 0 else 1))
                before = width * expansion
        self.stages, self.fc = nn.Sequential(*stages), nn.Linear(before, CLASSES)

    def forward(self, x):
        x = self.stages(self.maxpool(self.relu(self.bn1(self.conv1(x)))))
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


class Inverted(nn.Module):
    def __init__(self, before, after, stride, expand):
        super().__init__()
        hidden = before * expand
        layers = [] if expand == 1 else [nn.Conv2d(before, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)]
        layers += [nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(hidden, after, 1, bias=False), nn.BatchNorm2d(after))
        self.shortcut = stride == 1 and before == after

    def forward(self, x):
        return x + self.layers(x) if self.shortcut else self.layers(x)


class MobileNetV2(nn.Module):
    """Sandler et al., 2018, table 2."""

    def __init__(self):
        super().__init__()
        layers, before = [nn.Conv2d(1, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(inplace=True)], 32
        for expand, after, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
            for i in range(count):
                layers.append(Inverted(before, after, stride if i == 0 else 1, expand))
                before = after
        self.features = nn.Sequential(*layers, nn.Conv2d(before, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6(inplace=True))
        self.classifier = nn.Linear(1280, CLASSES)

    def forward(self, x):
        return self.classifier(self.features(x).mean([2, 3]))


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(SIZE * SIZE, 32), nn.Linear(32, CLASSES)

    def forward(self, x):
        x = self.first(x.flatten(1))
        return self.last(torch.relu(x + torch.rand_like(x)))


MODELS = {
    "resnet18": lambda: ResNet(Basic, 1, (2, 2, 2, 2)),
    "resnet50": lambda: ResNet(Bottleneck, 4, (3, 4, 6, 3)),
    "mobilenet_v2": MobileNetV2,
}
# model, how it is saved, ranks, batch, micro-batch sizes; two micro-batches for four ranks leave some without
CASES = [
    ("resnet18", "script", 1, 18, 7), ("resnet18", "trace", 2, 19, "[3, 5]"), ("resnet18", "script", 4, 8, 4), ("resnet50", "script", 2, 17, "[3, 5]"), ("mobilenet_v2", "trace", 3, 19, 3),
]  # fmt: skip


def write_data(folder):
    random = np.random.RandomState(5)
    images = random.randint(0, 256, (SAMPLES, SIZE, SIZE), np.uint8)
    labels = random.randint(0, CLASSES, SAMPLES, np.uint8)
    for name, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
        for part in ("train", "t10k"):
            with gzip.open(folder / f"{part}-{name}.gz", "wb") as file:
                file.write(bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape) + array.tobytes())
    return torch.tensor(images).double().unsqueeze(1) / 255, torch.tensor(labels.astype(np.int64))


def save(model, how, images, path):
    model.train()
    if how == "trace":
        # Tracing runs the model, which moves its running statistics.
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        traced = torch.jit.trace(model, images[:4].float(), check_trace=False)
        traced.load_state_dict(state)
        model.load_state_dict(state)
        traced.save(str(path))
    else:
        torch.jit.script(model).save(str(path))


def one_batch(model, images, labels, batches):
    """The first batch's gradient, and the buffers after it."""
    model = model.double().train()
    nn.functional.cross_entropy(model(images[batches[0]]), labels[batches[0]]).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}, {name: buffer for name, buffer in model.named_buffers()}


def order_alone(name, images, labels, indices, gradient):
    """What the order of the samples alone changes in PyTorch's own gradient of the batch: no other order of summation can promise less."""
    torch.manual_seed(4)
    return relative_l2(one_batch(MODELS[name](), images, labels, [list(reversed(indices))])[0], gradient)


def run_case(name, how, ranks, batch, micro, mode):
    with scratch() as folder:
        folder = pathlib.Path(folder)
        images, labels = write_data(folder)
        torch.manual_seed(4)
        model = MODELS[name]()
        save(model, how, images, folder / "model.pt")
        config = folder / "c.toml"
        config.write_text(CONFIG.format(folder=folder, batch=batch, micro=micro, mode=mode, steps=1))
        onebatch(PROGRAM, ranks, ["verify", config, "--save-gradient", folder / "g.safetensors", "--quiet", "--json", folder / "v.json"], expect=(0,) if mode == "exact" else (5,))
        onebatch(PROGRAM, ranks, ["train", config, "--quiet", "--set", "verify.at_start=false"])
        order = batches_of(folder / "run")
        gradient, buffers = one_batch(model, images, labels, order)
        ours = load_file(folder / "run" / "checkpoints" / "step-1" / "model.safetensors")
        statistics = {key: value for key, value in buffers.items() if value.is_floating_point()}
        assert mode == "local" or all(int(ours[key]) == int(value) for key, value in buffers.items() if not value.is_floating_point())
        report = json.loads((folder / "v.json").read_text())
        assert report["batch_norm"] == mode
        errors = relative_l2(load_file(folder / "g.safetensors"), gradient), relative_l2({key: ours[key] for key in statistics}, statistics)
        return *errors, order_alone(name, images, labels, order[0], gradient)


def main():
    failures = 0
    for case in CASES:
        gradient, statistics, order = run_case(*case, mode="exact")
        good = gradient <= max(1e-13, 2 * order) and statistics <= 1e-12
        failures += report(good, f"{case[0]} ({case[1]}) {case[2]} rank(s) batch {case[3]} micro-batches {case[4]}: gradient {gradient:.1e} (PyTorch with the samples reversed: {order:.1e}), running statistics {statistics:.1e}")
    # What it is for: the same with each micro-batch by itself.
    gradient, _statistics, _order = run_case("resnet18", "script", 1, 16, 4, "local")
    failures += report(gradient >= 0.5, f"resnet18, local BatchNorm, four micro-batches: off by {100 * gradient:.0f} %")
    # A model that draws by itself is found, and named.
    with scratch() as folder:
        folder = pathlib.Path(folder)
        write_data(folder)
        torch.jit.script(Noisy()).save(str(folder / "model.pt"))
        config = folder / "c.toml"
        config.write_text(CONFIG.format(folder=folder, batch=32, micro=8, mode="local", steps=1))
        out = onebatch(PROGRAM, 2, ["verify", config], expect=(5,))
        named = "aten::rand_like, after first, draws random numbers" in out
        failures += report(named, "verify names what draws otherwise", out)
    return failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
