#!/usr/bin/env python3
"""Recomputation on a ResNet-50 and a GPT of 12 layers, saved from Python: bits, memory and time against activations that are kept. Needs PyTorch in the running Python."""
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from torch import nn
except ImportError:
    print("no PyTorch in this Python: left out; .deps/python/bin/python has it after ./dev build --cuda")
    sys.exit(0)

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        after = 4 * width
        self.body = nn.Sequential(nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True), nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True), nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after))
        self.shortcut = nn.Identity() if before == after and stride == 1 else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet50():
    layers, before = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)], 64
    for stage, (width, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for i in range(count):
            layers.append(Bottleneck(before, width, 2 if stage > 0 and i == 0 else 1))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.qkv, self.project = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + nn.functional.dropout(self.down(nn.functional.gelu(self.up(self.norm2(x)))), 0.1, self.training)


class Gpt(nn.Module):
    """Token numbers come as floats: the data sets of this version are of floats."""

    def __init__(self, width=192, layers=12, heads=6, length=128, words=512):
        super().__init__()
        self.words = words
        self.word, self.place = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width))
        self.layers, self.norm, self.head = nn.Sequential(*(Layer(width, heads) for _ in range(layers))), nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        tokens = (x * 100).long() % self.words
        return self.head(self.norm(self.layers(self.word(tokens) + self.place)).mean(1))


def main():
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory(prefix="onebatch-recompute-") as folder:
        for name, model, samples, shape in (("resnet50", resnet50(), 16, (3, 64, 64)), ("gpt12", Gpt(), 8, (128,))):
            path = pathlib.Path(folder) / f"{name}.pt"
            torch.jit.script(model.train()).save(str(path))
            done = subprocess.run([ROOT / "build/bench/recompute_bench", path, str(samples), "9", *map(str, shape)], capture_output=True, text=True)
            print((done.stdout + done.stderr).replace(folder + "/", ""), end="", flush=True)
            if done.returncode != 0:
                sys.exit(done.returncode)


if __name__ == "__main__":
    main()
