#!/usr/bin/env python3
"""The gradient of a plan against PyTorch's, in one batch: MLP and ResNet with frozen BatchNorm, 1 to 4 ranks, uneven shares, a rank without work."""
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

from common import CifarResNet, Mlp, contiguous_state, digits, freeze_batch_norm, onebatch, randomise_batch_norm, read_json_lines, relative_l2, report, scratch

PROGRAM = sys.argv[1]
CONFIG = """
[run]
max_steps = 1
name = "order"
output_dir = "{folder}"
[batch]
global_batch_size = {batch}
{micro}
[data]
kind = "idx"
path = "data/digits"
[model]
{model}
weights = "{folder}/weights.safetensors"
[precision]
compute = "{precision}"
parameters = "{precision}"
[batch_norm]
frozen = true
[probe]
steps_per_trial = 1
max_val = 64
[log]
samples = true
[simulate]
devices = [{{slowdown = 1.0}}, {{slowdown = {second}}}, {{slowdown = 1.7}}, {{slowdown = 1.2}}]
"""
MODELS = {
    "mlp": ('kind = "mlp"\nhidden = [64, 48]', Mlp, {"float64": 1e-14, "float32": 2e-6}),
    "resnet": ('kind = "resnet"\ndepth = 8\nstem = "cifar"', CifarResNet, {"float64": 1e-13, "float32": 2e-6}),
}
# ranks, batch, micro-batch configuration, slowness of the second device
CASES = [(1, 257, "micro_batch_size = 100", 1.0), (2, 257, "", 2.5), (3, 200, "micro_batch_size = [40, 7, 13]", 1.0), (4, 131, "", 1.5), (2, 5, "", 20.0), (4, 3, "", 1.0)]


def reference_gradient(make, state, indices, dtype):
    model = make().to(dtype)
    model.load_state_dict({name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in state.items()})
    freeze_batch_norm(model)
    images, labels = digits(dtype)
    torch.nn.functional.cross_entropy(model(images[indices]), labels[indices]).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def main():
    failures = 0
    orders = {}  # of the samples, by batch
    for name, (text, make, tolerances) in MODELS.items():
        torch.manual_seed(4)
        model = make()
        with torch.no_grad():
            randomise_batch_norm(model)
        for ranks, batch, micro, second in CASES:
            for precision, tolerance in tolerances.items():
                with scratch() as folder:
                    folder = pathlib.Path(folder)
                    save_file(contiguous_state(model), folder / "weights.safetensors")
                    config = folder / "c.toml"
                    config.write_text(CONFIG.format(folder=folder, batch=batch, micro=micro, model=text, precision=precision, second=second))
                    onebatch(PROGRAM, ranks, ["verify", config, "--save-gradient", folder / "g.safetensors", "--quiet"])
                    if batch not in orders:  # the same on any ranks, which ranks_cli shows
                        onebatch(PROGRAM, ranks, ["train", config, "--quiet"])
                        orders[batch] = read_json_lines(folder / "order" / "samples.jsonl")[0]["indices"]
                    indices = orders[batch]
                    assert len(indices) == batch
                    error = relative_l2(load_file(folder / "g.safetensors"), reference_gradient(make, contiguous_state(model), indices, torch.float64))
                    good = error <= tolerance
                    failures += report(good, f"{name} {precision} {ranks} rank(s) batch {batch}: relative L2 {error:.2e} (at most {tolerance:.0e})")
    return failures


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
