"""Models and data of the memory and speed parts, as PyTorch has them."""
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, w = x.shape
        q, k, v = self.qkv(self.first(x)).view(n, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, w))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Gpt(nn.Module):
    """GPT-2 small's shape, its output weights tied."""

    def __init__(self, words: int = 50257, length: int = 1024, width: int = 768, heads: int = 12, layers: int = 12):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.last = nn.LayerNorm(width)

    def forward(self, x):
        h = self.tokens(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return functional.linear(self.last(h), self.tokens.weight).transpose(1, 2)


def image_data(samples, side, classes=10):
    return {"x": torch.rand(samples, 3, side, side), "y": torch.randint(classes, (samples,))}


def resnet(depth, small):
    import torchvision

    model = {18: torchvision.models.resnet18, 50: torchvision.models.resnet50}[depth](num_classes=10)
    if small:
        model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return model


# name: model, data of so many samples, a micro-batch of the speed part, its precision
CASES = {
    "MLP 784-512-512-10": (lambda: nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)),
                           lambda n: {"x": torch.rand(n, 784), "y": torch.randint(10, (n,))}, 256, "float32"),
    "ResNet-18 for CIFAR": (lambda: resnet(18, True), lambda n: image_data(n, 32), 256, "bfloat16"),
    "ResNet-50": (lambda: resnet(50, False), lambda n: image_data(n, 224), 64, "bfloat16"),
    "GPT-2 small": (Gpt, lambda n: {"x": torch.randint(50257, (n, 1024)), "y": torch.randint(50257, (n, 1024))}, 8, "bfloat16"),
}  # fmt: skip


def write(name, folder, samples):
    """model.pt and data.safetensors in the folder."""
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model, data, _, _ = CASES[name]
    torch.jit.script(model().train()).save(str(folder / "model.pt"))
    save_file(data(samples), folder / "data.safetensors")
