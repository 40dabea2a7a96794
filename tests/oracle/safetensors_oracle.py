#!/usr/bin/env python3
"""A checkpoint's files are what Python's safetensors reads, and its weights are what this program's evaluation used."""
import json
import pathlib
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from common import Mlp, digits, onebatch, read_idx, scratch

PROGRAM = sys.argv[1]
CONFIG = """
[run]
epochs = 1
name = "run"
output_dir = "{folder}"
[batch]
global_batch_size = 100
[data]
kind = "idx"
path = "data/digits"
[data.validation]
[model]
kind = "mlp"
hidden = [64, 48]
"""

with scratch() as folder:
    folder = pathlib.Path(folder)
    config = folder / "c.toml"
    config.write_text(CONFIG.format(folder=folder))
    onebatch(PROGRAM, 2, ["train", config, "--quiet", "--json", folder / "result.json"])
    checkpoint = folder / "run" / "checkpoints" / "latest"
    with safe_open(checkpoint / "optimizer.safetensors", "pt") as file:
        assert "exp_avg.layer0.weight" in file.keys(), list(file.keys())
    model = Mlp()
    model.load_state_dict(load_file(checkpoint / "model.safetensors"))
    images = torch.tensor(read_idx("t10k-images-idx3-ubyte").copy()).float().unsqueeze(1) / 16
    labels = torch.tensor(read_idx("t10k-labels-idx1-ubyte").astype("int64"))
    with torch.no_grad():
        outputs = model(images)
    result = json.loads((folder / "result.json").read_text())
    loss = torch.nn.functional.cross_entropy(outputs.double(), labels).item()
    accuracy = (outputs.argmax(1) == labels).double().mean().item()
    assert abs(result["validation_loss"] - loss) < 1e-5 * loss, (result, loss)
    assert abs(result["validation_accuracy"] - accuracy) < 1e-12, (result, accuracy)
    print("Python reads the checkpoint and finds the same loss and accuracy")
