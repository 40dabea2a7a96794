#!/usr/bin/env python3
"""Writes the traces that script_graph_test.cpp reads: make_traced.py FOLDER"""
import pathlib
import sys

import torch
from torch import nn

FOLDER = pathlib.Path(sys.argv[1])


class Constants(nn.Module):
    """Convolutions with the day's switches, tensors that the code holds and makes, and a recurrent layer's first state."""

    def __init__(self):
        super().__init__()
        self.conv, self.up, self.norm = nn.Conv2d(2, 4, 3), nn.ConvTranspose2d(4, 4, 2), nn.BatchNorm2d(4)
        self.lstm, self.head = nn.LSTM(4, 4, num_layers=2, dropout=0.5, batch_first=True), nn.Linear(4, 3)
        self.plain = torch.tensor([1.0, 0.5, -1.0, 2.0])

    def forward(self, x):
        x = self.norm(self.up(self.conv(x))).flatten(2).transpose(1, 2) * self.plain
        x = x + torch.zeros(4) + torch.arange(4) + torch.ones_like(x[:, :1]) + torch.tensor([0.0, 1.0, 2.0, 3.0])
        return self.head(self.lstm(x)[0].mean(1)) * 0.5


class Held(nn.Module):
    """Only operators that the meta device knows without Python."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.plain = nn.Linear(6, 4), nn.Linear(4, 3), torch.tensor([1.0, 0.5, -1.0, 2.0])

    def forward(self, x):
        x = self.first(x) * self.plain + torch.zeros(4) + torch.arange(4) + torch.ones_like(x[:, :4]) + torch.tensor([0.0, 1.0, 2.0, 3.0])
        return self.last(torch.tanh(x)) * 0.5


torch.manual_seed(2)
torch.backends.cudnn.allow_tf32 = True
FOLDER.mkdir(parents=True, exist_ok=True)
torch.jit.trace(Held().train(), torch.randn(3, 6), check_trace=False).save(str(FOLDER / "held.pt"))
model, inputs = Constants().train(), torch.randn(3, 2, 5, 5)
torch.jit.trace(model, inputs, check_trace=False).save(str(FOLDER / "constants.pt"))
