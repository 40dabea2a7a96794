#!/usr/bin/env python3
"""A model and its data from Python: writes tagger.pt, train.safetensors and validation.safetensors into a folder (default: runs/tagger_data).

The model gives every word of a sentence a label; sentences have unlike lengths and are padded to the longest. Needs PyTorch and safetensors.
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch import nn

WORDS, LONGEST = 7, 48


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        self.pairs = nn.Conv1d(16, 64, 2)
        self.head = nn.Linear(64, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = nn.functional.pad(self.words(words).transpose(1, 2), (1, 0))  # a word sees the one before it
        return self.head(self.pairs(x).relu().transpose(1, 2))  # [sentences, words, labels]


def sentences(count, seed):
    """Every label is the sum of its word and the one before, modulo WORDS."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, LONGEST + 1, (count,), generator=generator)
    words = torch.randint(0, WORDS, (count, LONGEST), generator=generator)
    labels = (words + nn.functional.pad(words, (1, 0))[:, :-1]) % WORDS
    labels[:, 0] = -100  # nothing comes before it: not counted
    labels[torch.arange(LONGEST) >= lengths.unsqueeze(1)] = -100
    return {"words": words, "labels": labels, "lengths": lengths}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "runs/tagger_data")
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    torch.jit.script(Tagger()).save(str(folder / "tagger.pt"))
    save_file(sentences(2000, 1), folder / "train.safetensors")
    save_file(sentences(300, 2), folder / "validation.safetensors")
    print(f"the model and its data are in {folder}")


if __name__ == "__main__":
    main()
