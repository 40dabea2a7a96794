#!/usr/bin/env python3
"""Training flags are the phase's, in traces as in scripts: validation, frozen BatchNorm, and what cannot be trained, against PyTorch's own train() and eval()."""
import copy
import sys

import torch
from torch import nn
from torch.nn import functional

from archives import Report, Trial, archive, sgd
from common import relative_l2, scratch

PROGRAM = sys.argv[1]
SAMPLES, CHANNELS, SIZE, CLASSES, WIDTH = 20, 2, 6, 5, 8


class Everything(nn.Module):
    """BatchNorm, dropouts, attention and a recurrent layer with dropout, each with a mode."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(CHANNELS, WIDTH, 3), nn.BatchNorm2d(WIDTH)
        self.drop, self.channels, self.alpha = nn.Dropout(0.3), nn.Dropout2d(0.2), nn.AlphaDropout(0.1)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, dropout=0.4, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 2, 12, dropout=0.2, batch_first=True)
        self.instance, self.head = nn.InstanceNorm1d(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.channels(self.drop(self.norm(self.conv(x)).relu())).flatten(2).transpose(1, 2)
        x = self.encoder(self.lstm(x)[0])
        return self.head(self.alpha(self.instance(x.transpose(1, 2)).mean(2)))


class Normed(nn.Module):
    """Only BatchNorm has a mode: gradients can be held against PyTorch's."""

    def __init__(self, affine=True, tracks=True):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(CHANNELS, WIDTH, 3), nn.BatchNorm2d(WIDTH, affine=affine, track_running_stats=tracks)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu().mean([2, 3]))


class ConvBatchNormBlock(nn.Module):
    """No BatchNorm itself, whatever its name says: frozen statistics do not switch it to evaluation."""

    def __init__(self):
        super().__init__()
        self.normed = Normed()

    def forward(self, x):
        x = self.normed(x)
        if self.training:
            x = x * 3.0
        return x


class Functional(nn.Module):
    """A BatchNorm of its own making."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(CHANNELS, WIDTH, 3), nn.Linear(WIDTH, CLASSES)
        self.register_buffer("average", torch.zeros(WIDTH))
        self.register_buffer("spread", torch.ones(WIDTH))

    def forward(self, x):
        return self.head(functional.batch_norm(self.conv(x), self.average, self.spread, training=self.training).relu().mean([2, 3]))


class Always(nn.Module):
    """A script's own constant: this dropout drops in validation too, as it does in Python."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(CHANNELS * SIZE * SIZE, CLASSES)

    def forward(self, x):
        return functional.dropout(self.head(x.flatten(1)), 1.0, training=True)


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(CHANNELS, WIDTH, num_layers=2, dropout=0.5, batch_first=True), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = x.flatten(2).transpose(1, 2)
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.full((x.size(0),), x.size(1)), batch_first=True)
        return self.head(self.lstm(packed)[1][0][-1])


def data(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, CHANNELS, SIZE, SIZE, generator=generator, dtype=torch.float64), torch.randint(0, CLASSES, (count,), generator=generator)


def randomised(model):
    """Running statistics that are not 0 and 1, so that a mistake in them shows."""
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    return model


def main():
    report = Report()
    inputs, targets = data(SAMPLES, 1)
    held_out = data(13, 2)
    validation_loss = lambda model: functional.cross_entropy(model.double().eval()(held_out[0]), held_out[1]).item()

    for how in ("script", "trace"):
        torch.manual_seed(3)
        model = randomised(Everything()).train()
        made = archive(model, how, inputs[:4].float())
        with scratch() as folder:
            trial = Trial(PROGRAM, folder, made, inputs, targets, held_out, steps=3, batch=8)
            model.double()
            for ranks in (1, 2):
                trial.train(ranks)
                after = trial.weights
                counted = sum(-(-len(batch) // 3) for batch in trial.batches)
                model.load_state_dict(after, strict=True)
                expected = validation_loss(model)
                report.check(abs(trial.result["validation_loss"] - expected) <= 1e-12 * expected, f"{how}, {ranks} rank(s): validation drops nothing and uses running statistics ({expected:.6f})", str(trial.result))
                report.check(0 < after["norm.num_batches_tracked"].item() <= counted and (ranks == 2 or after["norm.num_batches_tracked"].item() == counted), f"{how}, {ranks} rank(s): the {counted} micro-batches of training alone are counted", str(after["norm.num_batches_tracked"]))
            # On one rank no measured time has a say in the plan.
            trial.train()
            after = trial.weights
            trial.train(validation="")
            report.check(all(torch.equal(after[name], trial.weights[name]) for name in after), f"{how}: parameters and buffers have the same bits without validation")

    for name, make in (("Normed", Normed), ("ConvBatchNormBlock", ConvBatchNormBlock), ("Functional", Functional), ("no affine", lambda: Normed(affine=False))):
        for how in ("script", "trace"):
            torch.manual_seed(4)
            model = randomised(make()).train()
            made = archive(model, how, inputs[:4].float())
            with scratch() as folder:
                trial = Trial(PROGRAM, folder, made, inputs, targets, batch_norm="frozen = true")
                gradient = trial.gradient(2)
                trial.train()
            reference = copy.deepcopy(model).double().train()
            frozen = reference.normed.norm if name == "ConvBatchNormBlock" else reference.norm if hasattr(reference, "norm") else None
            if frozen is not None:
                frozen.eval()
            else:
                reference.eval()
            buffers = {key: value.clone() for key, value in reference.named_buffers()}
            expected = sgd(reference, inputs, targets, trial.batches)
            error = relative_l2(gradient, expected)
            moved = relative_l2(trial.weights, reference.state_dict())
            report.check(error <= 1e-13 and moved <= 1e-13, f"frozen, {how}, {name}: gradient {error:.1e}, weights after two steps {moved:.1e}")
            report.check(all(torch.equal(trial.weights[key].to(value.dtype), value) for key, value in buffers.items()), f"frozen, {how}, {name}: its buffers are what they were")

    # Flags in Python's own words are meant.
    with scratch() as folder:
        trial = Trial(PROGRAM, folder, archive(Always(), "script", None), inputs, targets, held_out)
        trial.train()
        report.check(abs(trial.result["validation_loss"] - torch.tensor(float(CLASSES)).log().item()) <= 1e-6, "a script's training=True drops in validation", str(trial.result))

    refused = [
        ("traced in eval mode, BatchNorm", Normed().eval(), "trace", "", "aten::batch_norm in norm is switched to evaluation"),
        ("traced in eval mode, dropout", nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(CHANNELS * SIZE * SIZE, CLASSES)).eval(), "trace", "", "traced in eval() mode: aten::dropout in 1"),
        ("traced with momentum None", nn.Sequential(nn.BatchNorm2d(CHANNELS, momentum=None), nn.Flatten(), nn.Linear(CHANNELS * SIZE * SIZE, CLASSES)), "trace", "", "momentum = None"),
        ("frozen without running statistics, script", Normed(tracks=False), "script", "frozen = true", "norm has no running statistics"),
        ("frozen without running statistics, trace", Normed(tracks=False), "trace", "frozen = true", "norm has no running statistics"),
        ("packed sequences with dropout", Packed(), "script", "", "packed sequences with dropout"),
    ]  # fmt: skip
    for name, model, how, batch_norm, words in refused:
        with scratch() as folder:
            trial = Trial(PROGRAM, folder, archive(model, how, inputs[:4].float()), inputs, targets, batch_norm=batch_norm)
            said = trial.train(expect=(2,))
            report.check(words in said and "Traceback" not in said and not list(trial.folder.glob("run/checkpoints/step-*")), f"{name}: refused by name", said)
    with scratch() as folder:  # but with frozen statistics a trace of eval mode is what is asked for
        trial = Trial(PROGRAM, folder, archive(randomised(Normed()).eval(), "trace", inputs[:4].float()), inputs, targets, batch_norm="frozen = true")
        trial.train()
        report.check(True, "traced in eval mode, frozen: trained")
    return report.failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
