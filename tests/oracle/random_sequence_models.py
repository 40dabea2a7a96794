"""Random models on words [N, T] and series [N, T, F]: recurrence, embeddings, attention with masks, tied language models."""
from typing import Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from random_families import family

REAL = ("float64", "float32")


class Recurrent(nn.Module):
    def __init__(self, kind, features, width, classes, batch_first, dropout, layers, both):
        super().__init__()
        kinds = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
        self.cell = kinds[kind](features, width, num_layers=layers, batch_first=batch_first, dropout=dropout, bidirectional=both)
        self.head = nn.Linear(width * (2 if both else 1), classes)
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        y = self.cell(x if self.batch_first else x.transpose(0, 1))[0]
        return self.head(y.mean(1) if self.batch_first else y[-1])


def recurrent(kind, dropout):
    def make(rng, d):
        layers = 2 if dropout else rng.randint(1, 2)
        return Recurrent(kind, d["F"], rng.randint(2, 5), d["K"], rng.random() < 0.5, 0.4 if dropout else 0.0, layers, rng.random() < 0.3)

    return make


for kind_name in ("lstm", "gru", "rnn"):
    family(kind_name, "series", ways=("script",), precisions=REAL)(recurrent(kind_name, False))
for kind_name in ("lstm", "gru"):
    family(f"{kind_name}_dropout", "series", ways=("script",), precisions=REAL, random="keyed")(recurrent(kind_name, True))


class Bag(nn.Module):
    def __init__(self, words, width, classes, **options):
        super().__init__()
        self.words = nn.Embedding(words, width, **options)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.words(x)
        inside = (x != 0).unsqueeze(-1).to(h.dtype)
        return self.head((h * inside).sum(1).tanh())


def bag(**options):
    return lambda rng, d: Bag(d["V"], rng.randint(2, 6), d["K"], **options)


family("embedding", "tokens", padding=True)(bag())
family("embedding_padding", "tokens", padding=True)(bag(padding_idx=0))
family("embedding_max_norm", "tokens", honest=False, ways=("trace",))  # a script leaves the renormalising out(bag(max_norm=0.8))
family("embedding_sparse", "tokens", ways=("script",))(bag(sparse=True))


class Attention(nn.Module):
    """A word sees those before it, by one of many ways to say so."""

    def __init__(self, words, width, classes, longest, kind, p):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        self.register_buffer("causal", torch.full((longest, longest), float("-inf")).triu(1))
        self.register_buffer("place", torch.arange(longest), persistent=False)
        self.kind, self.p, self.scale = kind, p, width**-0.5

    def forward(self, x: Tensor) -> Tensor:
        length = x.size(1)
        h = self.words(x) + self.places(self.place[:length])
        q, k, v = self.query(h), self.key(h), self.value(h)
        if self.kind == "buffer":
            weights = (q @ k.transpose(1, 2)) * self.scale + self.causal[:length, :length].to(q.dtype)
            y = functional.softmax(weights, -1) @ v
        elif self.kind == "flag":
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.p if self.training else 0.0)
        elif self.kind == "mask":
            y = functional.scaled_dot_product_attention(q, k, v, attn_mask=self.causal[:length, :length].to(q.dtype), dropout_p=self.p if self.training else 0.0)
        elif self.kind == "padding":
            inside = (x != 0).unsqueeze(1)
            y = functional.scaled_dot_product_attention(q, k, v, attn_mask=inside.expand(-1, length, -1), dropout_p=self.p if self.training else 0.0)
        else:
            masked = (self.causal[:length, :length] == 0).unsqueeze(0) & (x != 0).unsqueeze(1) & (x % 3 != 1).unsqueeze(2)
            y = functional.scaled_dot_product_attention(q, k, v, attn_mask=masked, dropout_p=self.p if self.training else 0.0)
        return self.head(self.norm(h + y))


def attention(kind, dropout=False):
    return lambda rng, d: Attention(d["V"], rng.choice([4, 6]), d["K"], d["T"], kind, rng.choice([0.1, 0.4]) if dropout else 0.0)


for kind_name in ("buffer", "flag", "mask", "padding", "fully"):
    family(f"attention_{kind_name}", "tokens", out="tokens", ways=("script",), padding=True)(attention(kind_name))
    if kind_name != "buffer":
        family(f"attention_{kind_name}_dropout", "tokens", out="tokens", ways=("script",), random="keyed", padding=True)(attention(kind_name, True))


class Block(nn.Module):
    def __init__(self, width, heads, p):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(p)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.size(0), x.size(1), x.size(2)
        qkv = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(n, t, c)))
        return x + self.drop(self.narrow(functional.gelu(self.wide(self.norm2(x)))))


class Gpt(nn.Module):
    """A language model whose last matrix is its embedding."""

    def __init__(self, words, width, longest, layers, p):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList([Block(width, 2, p) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        nn.init.normal_(self.words.weight, std=0.3)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.words(x) + self.places(torch.arange(x.size(1), device=x.device))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


@family("gpt_tied", "tokens", out="words", padding=True)
def gpt_tied(rng, d):
    return Gpt(d["V"], rng.choice([4, 8]), d["T"], rng.randint(1, 2), 0.0)


@family("gpt_tied_dropout", "tokens", out="words", random="keyed", padding=True, ways=("script",))
def gpt_tied_dropout(rng, d):
    return Gpt(d["V"], rng.choice([4, 8]), d["T"], 1, 0.3)


class MultiHead(nn.Module):
    def __init__(self, features, classes, batch_first):
        super().__init__()
        self.first = nn.Linear(features, 4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=batch_first)
        self.head = nn.Linear(4, classes)
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if not self.batch_first:
            h = h.transpose(0, 1)
        y = (h + self.attention(h, h, h)[0]).tanh()
        return self.head(y.mean(1) if self.batch_first else y.mean(0))


@family("multi_head", "series", ways=("script",))
def multi_head(rng, d):
    return MultiHead(d["F"], d["K"], rng.random() < 0.5)


class Encoder(nn.Module):
    def __init__(self, features, classes, p):
        super().__init__()
        self.first = nn.Linear(features, 4)
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, p, batch_first=True)
        self.head = nn.Linear(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.first(x)).mean(1))


@family("encoder_layer", "series", ways=("script",))
def encoder_layer(rng, d):
    return Encoder(d["F"], d["K"], 0.0)


@family("encoder_layer_dropout", "series", ways=("script",), random="keyed")
def encoder_layer_dropout(rng, d):
    return Encoder(d["F"], d["K"], 0.2)


class Tagger(nn.Module):
    """Classes second, as PyTorch's cross entropy takes them; and BatchNorm over all positions, padding among them."""

    def __init__(self, words, width, classes, norm, second):
        super().__init__()
        self.words, self.norm = nn.Embedding(words, width, padding_idx=0), norm(width)
        self.conv = nn.Conv1d(width, width, 1)
        self.head = nn.Linear(width, classes)
        self.second = second

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.conv(self.words(x).transpose(1, 2))).tanh()
        y = self.head(h.transpose(1, 2))
        return y.transpose(1, 2) if self.second else y


@family("classes_second", "tokens", out="second", padding=True)
def classes_second(rng, d):
    return Tagger(d["V"], 4, d["K"], lambda width: nn.Identity(), True)


@family("bn_over_positions", "tokens", out="tokens", padding=True, batch_norm=True, least=2)
def bn_over_positions(rng, d):
    return Tagger(d["V"], 4, d["K"], nn.BatchNorm1d, False)


class SeriesValues(nn.Module):
    """A value per position, [N, T, 2]: the mean square error counts padding too."""

    def __init__(self, features):
        super().__init__()
        self.first, self.last = nn.Linear(features, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).tanh())


@family("series_values", "series", out="series_values", padding=True)
def series_values(rng, d):
    return SeriesValues(d["F"])


class TwoInputs(nn.Module):
    def __init__(self, words, classes):
        super().__init__()
        self.words = nn.Embedding(words, 4)
        self.gate, self.head = nn.Linear(1, 4), nn.Linear(4, classes)

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        h = self.words(x) * self.gate(counts.unsqueeze(-1)).sigmoid()
        return self.head(h)


@family("two_inputs", "tokens+numbers", out="tokens", padding=True)
def two_inputs(rng, d):
    return TwoInputs(d["V"], d["K"])


class OwnTokens(nn.Module):
    """A language model's loss of its own: next words, divided by how many there are."""

    def __init__(self, words, width):
        super().__init__()
        self.words, self.mix, self.head = nn.Embedding(words, width), nn.Linear(width, width), nn.Linear(width, words)

    def forward(self, x: Tensor, target: Tensor) -> Tuple[Tensor, Tensor]:
        h = self.mix(self.words(x)).tanh()
        loss = functional.cross_entropy(self.head(h + h.cumsum(1) * 0.1).transpose(1, 2), target, reduction="none", ignore_index=-100)
        return loss.sum(), (target != -100).sum()


@family("own_tokens", "tokens", out="own_tokens", ways=("script",), padding=True)
def own_tokens(rng, d):
    return OwnTokens(d["V"], 4)


class Loop(nn.Module):
    """A loop of the script over positions, whose number a micro-batch's own length decides."""

    def __init__(self, words, width, classes):
        super().__init__()
        self.words, self.cell, self.head = nn.Embedding(words, width, padding_idx=0), nn.GRUCell(width, width), nn.Linear(width, classes)
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        e = self.words(x)
        h = torch.zeros(x.size(0), self.width, dtype=e.dtype)
        for t in range(x.size(1)):
            h = torch.where((x[:, t] != 0).unsqueeze(1), self.cell(e[:, t], h), h)
        return self.head(h)


@family("loop", "tokens", ways=("script",), padding=True, precisions=REAL)
def loop(rng, d):
    return Loop(d["V"], 3, d["K"])
