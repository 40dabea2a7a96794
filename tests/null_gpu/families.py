"""Models of many kinds for runs on the stand-in, and their samples."""
import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/oracle"), str(ROOT / "examples/from_python")]
import exported_models  # noqa: E402
import save_tagger  # noqa: E402


class Inverted(nn.Module):
    """MobileNetV2's block: wider, one filter for each channel, narrower."""

    def __init__(self, before, after, stride, factor):
        super().__init__()
        inside = before * factor
        widened = [nn.Conv2d(before, inside, 1, bias=False), nn.BatchNorm2d(inside), nn.ReLU6(inplace=True)] * (factor > 1)
        self.layers = nn.Sequential(*widened, nn.Conv2d(inside, inside, 3, stride, 1, groups=inside, bias=False), nn.BatchNorm2d(inside), nn.ReLU6(inplace=True),
                                    nn.Conv2d(inside, after, 1, bias=False), nn.BatchNorm2d(after))  # fmt: skip
        self.adds = stride == 1 and before == after

    def forward(self, x):
        return x + self.layers(x) if self.adds else self.layers(x)


class MobileNetV2(nn.Module):
    """All of its 17 blocks, a fourth of its widths."""

    def __init__(self):
        super().__init__()
        before, blocks = 8, []
        for factor, width, count, stride in ((1, 4, 1, 1), (6, 6, 2, 1), (6, 8, 3, 2), (6, 16, 4, 2), (6, 24, 3, 1), (6, 40, 3, 2), (6, 80, 1, 1)):
            for i in range(count):
                blocks.append(Inverted(before, width, stride if i == 0 else 1, factor))
                before = width
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(inplace=True), *blocks, nn.Conv2d(before, 160, 1, bias=False), nn.BatchNorm2d(160), nn.ReLU6(inplace=True))
        self.drop, self.fc = nn.Dropout(0.2), nn.Linear(160, 5)

    def forward(self, x):
        return self.fc(self.drop(self.features(x).mean((2, 3))))


class Bottleneck(nn.Module):
    def __init__(self, before, inside, stride):
        super().__init__()
        after = 4 * inside
        self.layers = nn.Sequential(nn.Conv2d(before, inside, 1, bias=False), nn.BatchNorm2d(inside), nn.ReLU(inplace=True), nn.Conv2d(inside, inside, 3, stride, 1, bias=False), nn.BatchNorm2d(inside),
                                    nn.ReLU(inplace=True), nn.Conv2d(inside, after, 1, bias=False), nn.BatchNorm2d(after))  # fmt: skip
        self.shortcut = nn.Identity() if before == after else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        return torch.relu(self.layers(x) + self.shortcut(x))


class ResNet50(nn.Module):
    """At its own widths where `width` is 64."""

    def __init__(self, width=8, outputs=5):
        super().__init__()
        before, blocks = width, []
        for stage, count in enumerate((3, 4, 6, 3)):
            for i in range(count):
                blocks.append(Bottleneck(before, width << stage, 2 if i == 0 and stage > 0 else 1))
                before = 4 * (width << stage)
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(before, outputs)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.qkv, self.project = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.drop(self.project(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)))
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh")))


class Gpt2(nn.Module):
    """GPT-2 small's 12 layers of 12 heads, its own widths where `width` is 768, its words' matrix once. Gives words second, as the loss wants them."""

    def __init__(self, width=48, length=16, words=64):
        super().__init__()
        self.words, self.places, self.drop = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width)), nn.Dropout(0.1)
        self.layers, self.norm, self.head = nn.Sequential(*(Block(width, 12) for _ in range(12))), nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        return self.head(self.norm(self.layers(self.drop(self.words(tokens) + self.places)))).transpose(1, 2)


class UNet(nn.Module):
    """Four halvings, and what each level has is kept for the way up. A class of each pixel."""

    def __init__(self, width=32, classes=5):
        super().__init__()
        widths = [width << i for i in range(5)]
        self.down = nn.ModuleList(self.pair(before, after) for before, after in zip([3, *widths], widths))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(2 * after, after, 2, 2) for after in widths[-2::-1])
        self.up = nn.ModuleList(self.pair(2 * after, after) for after in widths[-2::-1])
        self.out = nn.Conv2d(width, classes, 1)

    @staticmethod
    def pair(before, after):
        return nn.Sequential(*(layer for i in range(2) for layer in (nn.Conv2d(after if i else before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True))))

    def forward(self, x):
        kept = []
        for i, layers in enumerate(self.down):
            x = layers(x if i == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for widen, layers, skip in zip(self.widen, self.up, kept[-2::-1]):
            x = layers(torch.cat((widen(x), skip), 1))
        return self.out(x)


def tagger_data(folder, samples):
    torch.jit.script(save_tagger.Tagger()).save(str(folder / "model.pt"))
    save_file(save_tagger.sentences(samples, 1), folder / "data.safetensors")


def exported_data(make, inputs, targets):
    def write(folder, samples):
        exported_models.export(make().train(), folder / "model.pt2", inputs(4))
        save_file({"x": inputs(samples)[0], "y": targets(samples)}, folder / "data.safetensors")

    return write


def images(count):
    return (torch.randn(count, 3, 32, 32),)


def classes(count):
    return torch.randint(0, 5, (count,))


def tokens(count):
    return (torch.randint(0, 64, (count, 16)),)


def tokens_to_come(count):
    return tokens(count)[0]


FROM_FILE = '[data]\nkind = "safetensors"\npath = "{folder}/data.safetensors"\ninputs = ["x"]\ntarget = "y"\n[model]\nkind = "exported"\npath = "{folder}/model.pt2"\n'
SYNTHETIC = '[data]\nkind = "synthetic"\nshape = {shape}\nsize = {{samples}}\n[model]\n'
# name: what a configuration has of its model and data, and what writes their files into a folder
FAMILIES = {
    "mlp": (SYNTHETIC.format(shape="[64]") + 'kind = "mlp"\nhidden = [32]\ndropout = 0.1\n', None),
    "resnet18": (SYNTHETIC.format(shape="[3, 32, 32]") + 'kind = "resnet"\ndepth = 18\n', None),
    "resnet50": (FROM_FILE, exported_data(ResNet50, images, classes)),
    "mobilenet_v2": (FROM_FILE, exported_data(MobileNetV2, images, classes)),
    "gpt2": (FROM_FILE, exported_data(Gpt2, tokens, tokens_to_come)),
    "lstm": (FROM_FILE, exported_data(*exported_models.MODELS["lstm"])),
    "tagger": ('[data]\nkind = "safetensors"\npath = "{folder}/data.safetensors"\ninputs = ["words"]\ntarget = "labels"\nlengths = "lengths"\n[model]\nkind = "torchscript"\npath = "{folder}/model.pt"\n',
               tagger_data),
}  # fmt: skip


def of_family(folder, name, samples):
    """Its parts of a configuration, with its files written."""
    text, write = FAMILIES[name]
    torch.manual_seed(3)
    if write:
        write(folder, samples)
    return text.format(folder=folder, samples=samples)
