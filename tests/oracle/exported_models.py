"""Models written for tests of exported programs, and how each is exported: in training, for any batch."""
import torch
from torch import nn
from torch.nn import functional as F

BATCH = torch.export.Dim("batch", min=1, max=4096)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.bn(self.conv(x)) + x)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.blocks = nn.Sequential(Residual(8), nn.MaxPool2d(2), Residual(8))
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1), 1))


class DropMlp(nn.Module):
    def __init__(self, probability=0.3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Dropout(probability), nn.Linear(24, 5))

    def forward(self, x):
        return self.layers(x)


class SharedDrops(nn.Module):
    """Drops from positions, which all samples share, where the samples come second, and a path."""

    def __init__(self, normed):
        super().__init__()
        self.positions, self.drop, self.norm = nn.Parameter(torch.randn(4, 6)), nn.Dropout(0.5), nn.BatchNorm1d(24) if normed else nn.Identity()
        self.before, self.path, self.after = nn.Linear(12, 24), nn.Linear(6, 6), nn.Linear(24, 5)

    def forward(self, x):
        y = self.norm(self.before(x)).view(-1, 4, 6) + self.drop(self.positions)
        if self.training:
            y = y + self.path(y) * y.new_empty(y.shape[0], 1, 1).bernoulli_(0.75) / 0.75
        else:
            y = y + self.path(y)
        return self.after(self.drop(y.transpose(0, 1)).transpose(0, 1).flatten(1))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed, self.rnn, self.fc = nn.Embedding(11, 8), kind(8, 8, num_layers=2, batch_first=True, bidirectional=True), nn.Linear(16, 5)

    def forward(self, x):
        return self.fc(self.rnn(self.embed(x))[0].mean(1))


class Encoder(nn.Module):
    """Token 0 is padding."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.encoder, self.fc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 5)

    def forward(self, x):
        y = self.encoder(self.embed(x), src_key_padding_mask=x == 0)
        return self.fc(y[:, 0])


class Gpt(nn.Module):
    """Rotary positions made without gradients, weights tied."""

    def __init__(self, width=16, heads=2, words=11):
        super().__init__()
        self.heads = heads
        self.embed, self.norm, self.out = nn.Embedding(words, width), nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.out.weight = self.embed.weight
        self.qkv, self.proj, self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 32), nn.Linear(32, width)
        self.register_buffer("rates", 1.0 / 100.0 ** (torch.arange(0, width // heads, 2) / (width // heads)), persistent=False)

    def turned(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    def forward(self, x):
        batch, length = x.shape
        with torch.no_grad():
            angles = torch.arange(length, device=x.device)[:, None] * self.rates
            angles = torch.cat((angles, angles), -1)
            cos, sin = angles.cos(), angles.sin()
        y = self.embed(x)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm(y)).chunk(3, -1))
        z = F.scaled_dot_product_attention(self.turned(q, cos, sin), self.turned(k, cos, sin), v, is_causal=True)
        y = y + self.proj(z.transpose(1, 2).reshape(batch, length, -1))
        return self.out(y + self.down(F.silu(self.up(y))))[:, -1]


class UNet(nn.Module):
    """A label per pixel, classes second."""

    def __init__(self):
        super().__init__()
        self.down, self.low = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 12, 3, padding=1)
        self.up, self.out, self.norm = nn.ConvTranspose2d(12, 6, 2, 2), nn.Conv2d(12, 5, 1), nn.GroupNorm(2, 6)

    def forward(self, x):
        a = F.relu(self.norm(self.down(x)))
        b = F.relu(self.low(F.max_pool2d(a, 2)))
        return self.out(torch.cat((self.up(b), F.interpolate(a, scale_factor=1.0)), 1))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.fc = nn.EmbeddingBag(11, 8, mode="mean"), nn.Linear(8 + 12, 5)
        self.frozen = nn.Linear(12, 12)
        self.frozen.requires_grad_(False)

    def forward(self, words, x):
        return self.fc(torch.cat((self.bag(words), self.frozen(x)), 1))


class Outputs(nn.Module):
    """Several outputs, a constant, and a type of its own."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 8), nn.Linear(8, 5)

    def forward(self, x):
        hidden = torch.tanh(self.a(x)).to(torch.float32) * torch.tensor([1.0, 2.0] * 4) + torch.zeros(x.shape[0], 8)
        return {"hidden": hidden, "logits": self.b(hidden + torch.arange(8) / 3), "count": x.shape[0]}


class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 8), nn.Linear(8, 5)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
        with torch.autocast("cpu", enabled=False):
            return self.b(y.float().relu())


class Masked(nn.Module):
    """Attention by hand, which masks what comes later, and a whole row's padding, with the least number of its type: a literal of the program."""

    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(11, 16), nn.Linear(16, 48), nn.Linear(16, 5)

    def forward(self, x):
        q, k, v = self.qkv(self.embed(x)).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / 4
        least = torch.finfo(scores.dtype).min
        later = torch.full((x.shape[1], x.shape[1]), least, dtype=scores.dtype).triu(1)
        scores = scores.masked_fill((x == 0)[:, None], least) + later
        return self.out((scores.softmax(-1) @ v)[:, -1])


class Attending(nn.Module):
    """Masks that its length alone gives: one that masks nothing, what comes later, a window, what is written to afterwards, ones like the data, the first token alone; and one of the data."""

    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(11, 16), nn.ModuleList([nn.Linear(16, 48) for _ in range(7)]), nn.Linear(16, 5)

    def forward(self, x):
        batch, length = x.shape
        at = torch.arange(length)
        later = at[:, None] >= at
        window = later & (at > at[:, None] - 4)
        written = torch.ones(length, length, dtype=torch.bool)
        masks = [(at >= 0).expand(batch, 1, length, length), later.expand(batch, 1, length, length), window, written, (x != 0)[:, None, None], torch.ones_like(x, dtype=torch.bool)[:, None, None],
                 (at < 1)[None]]
        y = self.embed(x)
        for layer, mask in zip(self.qkv, masks):
            q, k, v = (part.view(batch, length, 2, 8).transpose(1, 2) for part in layer(y).chunk(3, -1))
            y = y + F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(batch, length, 16)
            written[:, 0] = False
        return self.out(y[:, -1])


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 5)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls.add_(1)
        return self.fc(x)


class OwnLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 5)

    def forward(self, x, target):
        return F.cross_entropy(self.fc(x), target, reduction="sum"), torch.ones_like(target, dtype=x.dtype).sum()


class Masking(nn.Module):
    """Operators that compute something else of the same numbers in int64."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 5)

    def forward(self, x, mask, grey, count):
        return self.fc(torch.where(mask, x, -x) * (~mask).float() + x.masked_fill(mask, 0.5) * (grey - 128).float() / 255 + (count * 1_000_003).float() / 2**31)


class Clock(nn.Module):
    """Times in seconds: a buffer and a constant that float32 does not hold."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 5)
        self.register_buffer("start", torch.tensor(1_700_000_061.0, dtype=torch.float64))

    def forward(self, seconds):
        since = seconds[:, None] - self.start - torch.tensor([16777217.0, 16777219.0], dtype=torch.float64)
        return self.fc((since / 60).float())


class Booleans(nn.Module):
    """Booleans of Python where an operator takes a number."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 5)

    def forward(self, x):
        largest = torch.zeros_like(x, dtype=torch.bool).scatter_(1, x.topk(2).indices, True)
        kept = largest.masked_fill(x < -1, True) == True  # noqa: E712
        return self.fc(x * (kept & torch.full((12,), True)))


class Rotating(nn.Module):
    """Positions as complex numbers, which are not saved."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 5)
        self.register_buffer("turns", torch.polar(torch.ones(6), torch.arange(6.0)), persistent=False)

    def forward(self, x):
        return self.fc(torch.view_as_real(torch.view_as_complex(x.unflatten(1, (6, 2))) * self.turns).flatten(1))


class Squeezing(nn.Module):
    """Also where there is one sample."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(F.adaptive_avg_pool2d(self.conv(x), 1).squeeze())


class Named(nn.Module):
    """Inputs of names that files of torch.export have for themselves."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(24, 5)

    def forward(self, metadata, hint):
        return self.fc(torch.cat((metadata, hint), 1))


class InPlace(nn.Module):
    """Normalises what it is given where it lies."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5))
        self.register_buffer("mean", torch.linspace(-1, 1, 12))

    def forward(self, x):
        x.sub_(self.mean).mul_(3.0)
        return self.layers(x)


class Standardised(nn.Module):
    """Convolutions whose weights batch_norm standardises, as timm writes them."""

    def __init__(self):
        super().__init__()
        self.conv, self.scaled, self.gain = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Parameter(torch.ones(8))
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        weight = F.batch_norm(self.conv.weight.reshape(1, 8, -1), None, None, training=True, momentum=0.0, eps=1e-6).reshape_as(self.conv.weight)
        scaled = F.batch_norm(self.scaled.weight.reshape(1, 8, -1), None, None, weight=(self.gain * 0.3).view(-1), training=True, momentum=0.0, eps=1e-6).reshape_as(self.scaled.weight)
        y = F.relu(F.conv2d(x, weight, self.conv.bias))
        return self.fc(F.conv2d(y, scaled, self.scaled.bias).mean((2, 3)))


class Skips(nn.Module):
    """What one layer makes is read several times by each of those after it."""

    def __init__(self):
        super().__init__()
        self.first, self.layers, self.last = nn.Linear(12, 64), nn.ModuleList(nn.Linear(64, 64) for _ in range(6)), nn.Linear(64, 5)

    def forward(self, x):
        y = self.first(x)
        z = y
        for layer in self.layers:
            z = torch.tanh(layer(z + 0.3 * y)) * y + torch.sin(1.7 * y) * z + torch.sigmoid(y)
        return self.last(z)


class Turned(nn.Module):
    """What is read the other way round after a cut has a gradient laid out the other way round."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(12, 16 * 48), nn.BatchNorm1d(48)
        self.layers, self.last = nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48), nn.Tanh()), nn.Linear(48, 5)

    def forward(self, x):
        y = self.norm(self.first(x).view(-1, 48, 16))
        return self.last(self.layers(y.transpose(1, 2)).mean(1))


class ThroughView(nn.Module):
    """Writes through a view into what the layer before has made, which is where least goes over a cut."""

    def __init__(self):
        super().__init__()
        self.first, self.middle = nn.Sequential(nn.Linear(12, 256), nn.Tanh()), nn.Linear(256, 64)
        self.layers, self.last = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)), nn.Linear(64, 5)

    def forward(self, x):
        y = self.middle(self.first(x))
        view = y.view(-1, 4, 16)
        view.mul_(1.5)
        return self.last(torch.tanh(self.layers(view)).flatten(1))


class Deciding(nn.Module):
    """Another way for even lengths."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 5)

    def forward(self, x):
        return self.fc((x[:, : x.shape[1] // 2] if x.shape[1] % 2 == 0 else x).mean(1))


class Expanded(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 5)
        self.register_buffer("mean", torch.tensor(0.5).expand(12))

    def forward(self, x):
        return self.fc(x - self.mean)


def images(n):
    return (torch.randn(n, 3, 8, 8),)


def vectors(n):
    return (torch.randn(n, 12),)


def tokens(n):
    return (torch.randint(1, 11, (n, 7)),)


def padded(n):
    x = torch.randint(1, 11, (n, 7))
    x[::2, 4:] = 0
    return (x,)


def masks(n):
    return (*vectors(n), torch.rand(n, 12) > 0.6, torch.randint(0, 256, (n, 12), dtype=torch.uint8), torch.randint(0, 2**20, (n, 12), dtype=torch.int32))


def times(n):
    return (1_700_000_061 + 2**24 + torch.randint(0, 120, (n,)),)


def labels(n):
    return torch.randint(0, 5, (n,))


def export(model, file, inputs, dynamic=True, **options):
    shapes = tuple({0: BATCH} for _ in inputs) if dynamic is True else dynamic
    program = torch.export.export(model, inputs, dynamic_shapes=shapes, strict=False, **options)
    torch.export.save(program, str(file))


# What makes it, its inputs, its target
MODELS = {
    "mlp": (lambda: DropMlp(0.0), vectors, labels),
    "conv_net": (ConvNet, images, labels),
    "lstm": (lambda: Recurrent(nn.LSTM), tokens, labels),
    "gru": (lambda: Recurrent(nn.GRU), tokens, labels),
    "encoder": (Encoder, padded, labels),
    "masked": (Masked, padded, labels),
    "attending": (Attending, padded, labels),
    "gpt": (Gpt, tokens, lambda n: torch.randint(0, 11, (n,))),
    "u_net": (UNet, images, lambda n: torch.randint(0, 5, (n, 8, 8))),
    "two_inputs": (TwoInputs, lambda n: (*tokens(n), *vectors(n)), labels),
    "masking": (Masking, masks, labels),
    "booleans": (Booleans, vectors, labels),
    "rotating": (Rotating, vectors, labels),
    "squeezing": (Squeezing, images, labels),
    "outputs": (Outputs, vectors, labels),
    "autocast": (Autocast, vectors, labels),
    "named": (Named, lambda n: (*vectors(n), *vectors(n)), labels),
    "in_place": (InPlace, vectors, labels),
    "standardised": (Standardised, images, labels),
    "own_loss": (OwnLoss, lambda n: (*vectors(n), labels(n)), labels),
}
