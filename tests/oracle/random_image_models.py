"""Random models on images [N, C, H, W] and signals [N, C, L]: convolutions, norms of every kind, memory formats, labels per pixel."""
import torch
from torch import Tensor, nn
from torch.nn import functional

from random_families import family

BN = {"batch_norm": True, "least": 2}


def batch_norm_2d(width):
    return nn.BatchNorm2d(width)


def group_norm(width):
    return nn.GroupNorm(2 if width % 2 == 0 else 1, width)


class Conv(nn.Module):
    def __init__(self, channels, width, classes, norm, act, pool):
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(channels, width, 3, padding=1, bias=False), norm(width)
        self.second, self.norm2 = nn.Conv2d(width, width, 3, stride=2, padding=1), norm(width)
        self.act, self.pool = act(), pool
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm1(self.first(x)))
        x = self.pool(self.act(self.norm2(self.second(x))))
        return self.head(x.mean((2, 3)))


POOLS = [nn.MaxPool2d(2, ceil_mode=True), nn.AvgPool2d(2, ceil_mode=True), nn.AdaptiveAvgPool2d(2), nn.Identity()]
SMOOTH = [nn.Tanh, nn.SiLU, nn.GELU, nn.ReLU, nn.Hardswish]


def conv(norm, rng, d, pools=None):
    return Conv(d["C"], rng.choice([2, 4, 6]), d["K"], norm, rng.choice(SMOOTH), rng.choice(pools or POOLS))


@family("conv", "image")
def plain_conv(rng, d):
    return conv(lambda width: nn.Identity(), rng, d)


@family("channels_last", "image")
def channels_last(rng, d):
    return conv(lambda width: nn.Identity(), rng, d).to(memory_format=torch.channels_last)


@family("bn_channels_last", "image", **BN)
def bn_channels_last(rng, d):
    return conv(batch_norm_2d, rng, d).to(memory_format=torch.channels_last)


@family("group_norm", "image")
def group_norm_conv(rng, d):
    return conv(group_norm, rng, d)


@family("bn2d", "image", **BN)
def bn2d(rng, d):
    return conv(batch_norm_2d, rng, d)


@family("bn2d_mixed", "image", **BN)
def bn2d_mixed(rng, d):
    """Norms of unlike kinds in one model."""
    norms = [lambda width: nn.BatchNorm2d(width, momentum=None), lambda width: nn.BatchNorm2d(width, affine=False, eps=1e-2), group_norm]
    turn = iter(rng.sample(norms, 2))
    return conv(lambda width: next(turn)(width), rng, d)


@family("instance_norm", "image")
def instance_norm(rng, d):
    affine = rng.random() < 0.5
    return conv(lambda width: nn.InstanceNorm2d(width, affine=affine), rng, d)


@family("instance_norm_tracked", "image", honest=False, alone=False)
def instance_norm_tracked(rng, d):
    return conv(lambda width: nn.InstanceNorm2d(width, affine=True, track_running_stats=True), rng, d)


class Residual(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.bn2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.short = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += self.short(x)
        return functional.relu(y, inplace=True)


class ResNet(nn.Module):
    def __init__(self, channels, width, classes, squeeze):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.one, self.two = Residual(width, width, 1), Residual(width, 2 * width, 2)
        self.squeeze = nn.Sequential(nn.Linear(2 * width, 2), nn.ReLU(), nn.Linear(2, 2 * width), nn.Sigmoid()) if squeeze else nn.Identity()
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.two(self.one(self.stem(x))).mean((2, 3))
        return self.head(x * self.squeeze(x))


@family("resnet", "image", **BN)
def resnet(rng, d):
    return ResNet(d["C"], rng.choice([2, 3, 4]), d["K"], rng.random() < 0.5)


class Depthwise(nn.Module):
    def __init__(self, channels, width, classes):
        super().__init__()
        self.wide, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.deep, self.bn2 = nn.Conv2d(width, width, 3, padding=2, dilation=2, groups=width), nn.BatchNorm2d(width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu6(self.bn1(self.wide(x)))
        x = functional.hardswish(self.bn2(self.deep(x)))
        return self.head(functional.adaptive_avg_pool2d(x, 1)).flatten(1)


@family("depthwise", "image", **BN)
def depthwise(rng, d):
    return Depthwise(d["C"], rng.choice([3, 4]), d["K"])


class UNet(nn.Module):
    """A label per pixel."""

    def __init__(self, channels, width, classes, norm):
        super().__init__()
        self.down, self.norm = nn.Conv2d(channels, width, 3, padding=1), norm(width)
        self.deep = nn.Conv2d(width, width, 3, padding=1)
        self.up = nn.ConvTranspose2d(width, width, 2, stride=2)
        self.head = nn.Conv2d(2 * width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.down(x)).tanh()
        y = functional.silu(self.deep(functional.avg_pool2d(x, 2)))
        y = functional.interpolate(self.up(y), size=[x.size(2), x.size(3)], mode="bilinear", align_corners=False)
        return self.head(torch.cat([x, y], 1))


@family("unet", "image", out="pixels", ways=("script",))
def unet(rng, d):
    return UNet(d["C"], rng.choice([2, 4]), d["K"], group_norm)


@family("bn_unet", "image", out="pixels", ways=("script",), **BN)
def bn_unet(rng, d):
    return UNet(d["C"], rng.choice([2, 4]), d["K"], batch_norm_2d)


class Signal(nn.Module):
    def __init__(self, channels, width, classes, norm):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(channels, width, 3, padding=1), norm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(x)).tanh().amax(-1))


@family("signal", "signal")
def signal(rng, d):
    return Signal(d["C"], rng.choice([3, 4]), d["K"], lambda width: nn.GroupNorm(1, width))


@family("bn_signal", "signal", **BN)
def bn_signal(rng, d):
    return Signal(d["C"], rng.choice([3, 4]), d["K"], nn.BatchNorm1d)


class Drops(nn.Module):
    def __init__(self, channels, width, classes, norm, p):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, width, 3, padding=1), norm(width)
        self.drop2, self.drop = nn.Dropout2d(p), nn.Dropout(p, inplace=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop2(self.norm(self.conv(x)).tanh())
        return self.head(self.drop(x.mean((2, 3))))


@family("dropout2d", "image", random="keyed")
def dropout2d(rng, d):
    return Drops(d["C"], 4, d["K"], group_norm, rng.choice([0.2, 0.5]))


@family("bn_dropout2d", "image", random="keyed", **BN)
def bn_dropout2d(rng, d):
    return Drops(d["C"], 4, d["K"], batch_norm_2d, rng.choice([0.2, 0.5]))


class Auto(nn.Module):
    """From a vector to a vector, through an image."""

    def __init__(self, features):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.back = nn.Conv2d(3, 1, 3, padding=1)
        self.out = nn.Linear(2 * features, 4)
        self.features = features

    def forward(self, x: Tensor) -> Tensor:
        image = torch.stack([x, x.flip(1)], 1).unsqueeze(1)
        return self.out(self.back(self.conv(image).sigmoid()).flatten(1))


@family("image_values", "vector", out="values")
def image_values(rng, d):
    model = Auto(d["F"])
    model.out = nn.Linear(2 * d["F"], d["K"])
    return model


class Normal(nn.Module):
    """As the program's own: layer names are those of torchvision."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.bn2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)) if stride > 1 else None

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class BuiltinResNet(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1, self.layer2, self.layer3 = (nn.Sequential(Normal(*widths)) for widths in ((16, 16, 1), (16, 32, 2), (32, 64, 2)))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.bn1(self.conv1(x)).relu())))
        return self.fc(x.mean((2, 3)))


@family("builtin_resnet", "image", builtin="resnet", ways=("builtin",), **BN)
def builtin_resnet(rng, d):
    return BuiltinResNet(d["C"], d["K"])
