#!/usr/bin/env python3
"""Losses with weights against PyTorch in one batch: sequences of 1 to 128 tokens, ignored labels, a weight per token, two inputs, a short last batch, 1 to 4 ranks; and losses that the model returns itself."""
import json
import pathlib
import sys
from typing import Tuple

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from common import batches_of, configuration, onebatch, relative_l2, report, scratch

PROGRAM = sys.argv[1]
SAMPLES, LONGEST, WORDS, CLASSES, WIDTH = 42, 128, 37, 11, 12
BATCH, STEPS, RATE = 17, 3, 0.05  # the third batch holds 8
CONFIG = configuration("""
[run]
epochs = 1
seed = 3
name = "tokens"
[batch]
global_batch_size = 17
{micro}
[data]
inputs = ["words", "counts"]
target = "labels"
{weights}
lengths = "lengths"
[data.validation]
path = "{folder}/validation.safetensors"
[loss]
{loss}
[optimizer]
lr = 0.05
[memory]
recompute = {recompute}
[simulate]
devices = [{{slowdown = 1.0}}, {{slowdown = 1.9}}, {{slowdown = 1.3}}, {{slowdown = 1.0}}]
""")


class Tagger(nn.Module):
    """A word sees those before it; a number per word is its second input."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.query, self.key, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, words: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + counts.unsqueeze(-1)
        x = x + functional.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x), is_causal=True)
        return self.head(x.tanh())


class TaggerWithLoss(nn.Module):
    """Returns the sum and the weight of its loss."""

    def __init__(self, tagger: Tagger):
        super().__init__()
        self.tagger = tagger

    def forward(self, words: torch.Tensor, counts: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        loss = functional.cross_entropy(self.tagger(words, counts).transpose(1, 2), labels, reduction="none")
        return (loss * weights).sum(), (weights * (labels != -100)).sum()


def make_data(seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, LONGEST + 1, (SAMPLES,), generator=generator)
    lengths[0], lengths[1] = 1, LONGEST
    inside = torch.arange(LONGEST) < lengths.unsqueeze(1)
    labels = torch.randint(0, CLASSES, (SAMPLES, LONGEST), generator=generator)
    labels[~inside | (torch.rand(SAMPLES, LONGEST, generator=generator) < 0.2)] = -100
    labels[2] = -100  # nothing of it counts
    return {
        "words": torch.where(inside, torch.randint(0, WORDS, (SAMPLES, LONGEST), generator=generator), 0).int(),
        "counts": torch.randn(SAMPLES, LONGEST, generator=generator, dtype=torch.float64),
        "labels": labels,
        "weights": torch.rand(SAMPLES, LONGEST, generator=generator, dtype=torch.float64) + 0.1,
        "lengths": lengths,
    }


def mean_loss(case, outputs, labels, weights):
    flat = labels.flatten()
    class_weights = torch.linspace(0.5, 1.5, CLASSES, dtype=torch.float64) if case["classes"] else None
    loss = functional.cross_entropy(outputs.flatten(0, 1), flat, weight=class_weights, reduction="none", label_smoothing=case["smoothing"])
    of_label = torch.where(flat == -100, 0.0, weights.flatten() if case["weighted"] else torch.ones_like(loss))
    if class_weights is not None:
        divisor = (of_label * class_weights[flat.clamp(min=0)]).sum()
    else:
        divisor = of_label.sum() if case["by"] == "tokens" else (labels != -100).any(1).sum()
    return (loss * of_label).sum() / divisor


def reference_weights(case, state, data, batches):
    model = Tagger().double()
    model.load_state_dict(state)
    for batch in batches:
        model.zero_grad()
        mean_loss(case, model(data["words"][batch].long(), data["counts"][batch]), data["labels"][batch], data["weights"][batch]).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= RATE * parameter.grad
    return model.state_dict()


def main():
    cases = [
        {"name": "token weights", "loss": "", "weighted": True},
        {"name": "token weights, recomputed", "loss": "", "weighted": True, "recompute": "3"},
        {"name": "by samples", "loss": 'normalize_by = "samples"', "by": "samples"},
        {"name": "class weights, smoothing", "loss": f"label_smoothing = 0.1\nclass_weights = {torch.linspace(0.5, 1.5, CLASSES, dtype=torch.float64).tolist()}",
         "weighted": True, "classes": True, "smoothing": 0.1},
        {"name": "the model's loss", "loss": 'kind = "model"', "weighted": True, "own": True},
        {"name": "the model's loss, recomputed", "loss": 'kind = "model"', "weighted": True, "own": True, "recompute": "3"},
    ]
    failures = 0
    torch.manual_seed(5)
    tagger, data, validation = Tagger(), make_data(11), make_data(12)
    for case in cases:
        case = {"weighted": False, "classes": False, "smoothing": 0.0, "by": "tokens", "own": False, "recompute": '"off"', **case}
        plans = ((1, "micro_batch_size = 5"), (4, ""), (3, "micro_batch_size = [1, 7, 2]"))
        for ranks, micro in plans if case["recompute"] == '"off"' else plans[2:]:
            with scratch() as folder:
                folder = pathlib.Path(folder)
                save_file(data, folder / "data.safetensors")
                save_file(validation, folder / "validation.safetensors")
                model = torch.jit.script(TaggerWithLoss(tagger) if case["own"] else tagger)
                model.save(str(folder / "model.pt"))
                config = folder / "c.toml"
                weights = 'weights = "weights"' if case["weighted"] else ""
                config.write_text(CONFIG.format(folder=folder, micro=micro, weights=weights, loss=case["loss"], recompute=case["recompute"]))
                onebatch(PROGRAM, ranks, ["train", config, "--quiet", "--json", folder / "train.json"])
                batches = batches_of(folder / "tokens")
                assert [len(batch) for batch in batches] == [BATCH, BATCH, SAMPLES - 2 * BATCH]
                ours = load_file(next((folder / "tokens" / "checkpoints").glob("step-*")) / "model.safetensors")
                state = {name: tensor.double() for name, tensor in tagger.state_dict().items()}
                expected = reference_weights(case, state, data, batches)
                moved = {name.removeprefix("tagger."): tensor - state[name.removeprefix("tagger.")] for name, tensor in ours.items()}
                error = relative_l2(moved, {name: expected[name] - state[name] for name in expected})
                model = Tagger().double()
                model.load_state_dict(expected)
                with torch.no_grad():
                    outputs = model(validation["words"].long(), validation["counts"])
                    loss = mean_loss(case, outputs, validation["labels"], validation["weights"]).item()
                counted = validation["labels"] != -100
                accuracy = (outputs.argmax(-1) == validation["labels"])[counted].double().mean().item()
                result = json.loads((folder / "train.json").read_text())
                metrics = abs(result["validation_loss"] / loss - 1) <= 1e-12 and (case["own"] or abs(result["validation_accuracy"] - accuracy) <= 1e-12)
                good = error <= 1e-14 and metrics
                failures += report(good, f"{case['name']}, {ranks} rank(s): what {STEPS} steps add to the weights, relative L2 {error:.2e} (at most 1e-14); "
                                   f"validation loss and accuracy {'are' if metrics else 'are NOT'} PyTorch's")
    return failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
