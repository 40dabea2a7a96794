#!/usr/bin/env python3
"""Attention whose queries may see nothing, and recurrent layers, with dropout: the same under every plan, and PyTorch's own where next to nothing is dropped."""
import copy
import sys

import torch
from torch import nn
from torch.nn import functional

from archives import Report, Trial, archive, sgd
from common import relative_l2, scratch

PROGRAM = sys.argv[1]
SAMPLES, LENGTH, WIDTH, CLASSES = 14, 6, 4, 5
NEXT_TO_NOTHING = 1e-20  # draws, and drops nothing


class Masked(nn.Module):
    """Padding at the end of every sample; a sample without a word masks whole rows."""

    def __init__(self, dropout: float, boolean: bool):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head, self.dropout, self.boolean = nn.Linear(WIDTH, CLASSES), dropout, boolean

    def forward(self, x):
        seen = (x[:, :, 0] > 0.0).unsqueeze(1)  # [N, 1, length]: what every query may see
        mask = seen.expand(x.size(0), x.size(1), x.size(1))
        if not self.boolean:
            mask = torch.zeros_like(mask, dtype=x.dtype).masked_fill(mask.logical_not(), float("-inf"))
        x = functional.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x), attn_mask=mask, dropout_p=self.dropout if self.training else 0.0)
        return self.head(x.mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind, dropout, batch_first, bidirectional):
        super().__init__()
        options = {"num_layers": 3, "dropout": dropout, "batch_first": batch_first, "bidirectional": bidirectional}
        self.layers = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[kind](WIDTH, WIDTH, **options)
        self.head, self.batch_first = nn.Linear(WIDTH * (2 if bidirectional else 1), CLASSES), batch_first

    def forward(self, x):
        x = self.layers(x if self.batch_first else x.transpose(0, 1))[0]
        return self.head(x.mean(1 if self.batch_first else 0))


def main():
    report = Report()
    generator = torch.Generator().manual_seed(8)
    inputs = torch.randn(SAMPLES, LENGTH, WIDTH, generator=generator, dtype=torch.float64)
    inputs[:, :, 0] = torch.where(torch.arange(LENGTH) < (torch.arange(SAMPLES) % LENGTH).unsqueeze(1), inputs[:, :, 0].abs() + 0.1, -1.0)
    targets = torch.randint(0, CLASSES, (SAMPLES,), generator=generator)
    cases = [(f"attention, {'boolean' if boolean else 'additive'} mask", lambda dropout, boolean=boolean: Masked(dropout, boolean)) for boolean in (True, False)]
    for kind, batch_first, bidirectional in (("lstm", True, False), ("lstm", False, True), ("gru", False, False), ("rnn", True, True)):
        cases.append((f"{kind}, {'batch' if batch_first else 'time'} first{', both ways' if bidirectional else ''}", lambda dropout, k=kind, b=batch_first, t=bidirectional: Recurrent(k, dropout, b, t)))
    # A micro-batch of 6 divides the length, one of 4 does not.
    plans = ((1, SAMPLES, "", ""), (1, 6, "", ""), (2, 4, "", ""), (3, 1, "", ""), (1, 6, "", "[memory]\nrecompute = 2"))
    for name, make in cases:
        for how in ("script", "trace"):
            torch.manual_seed(9)
            model = make(NEXT_TO_NOTHING).train()
            with scratch() as folder:
                trial = Trial(PROGRAM, folder, archive(model, how, inputs[:3].float()), inputs, targets)
                gradient = trial.gradient(2)
                trial.train()
                torch.manual_seed(9)
                reference = make(0.0).double().train()
                expected = sgd(reference, inputs, targets, trial.batches)
                error = relative_l2(gradient, expected)
                report.check(error <= 1e-13, f"{name}, {how}: against PyTorch without dropout {error:.1e}")
            torch.manual_seed(9)
            model = make(0.4).train()
            with scratch() as folder:
                trial = Trial(PROGRAM, folder, archive(model, how, inputs[:3].float()), inputs, targets)
                gradients = [trial.gradient(ranks, micro=micro, more=more) for ranks, micro, _, more in plans[:1 if how == "trace" else len(plans)]]
                spread = max(relative_l2(other, gradients[0]) for other in gradients)
                dropped = relative_l2(gradients[0], gradient)
                report.check(spread <= 1e-13 and dropped > 1e-2, f"{name}, {how}: {len(gradients)} plans with the same masks {spread:.1e}, which drop ({dropped:.1e})")
    return report.failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
