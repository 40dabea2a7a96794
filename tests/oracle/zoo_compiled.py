"""The zoo's models as native code (onebatch compile): their gradient of the whole batch in float64, at two batch sizes other than the exported one, against eager PyTorch's.

zoo.py PROGRAM --compiled runs them. The loss is a sum of squares, folded into the program, so that outputs of every shape will do.
"""
import copy
import json
import pathlib
import time

import torch
from safetensors.torch import save_file

from common import configuration, loaded, onebatch, relative_l2

EXPORTED, BATCHES = 4, (7, 5)
CONFIG = configuration("""
[run]
max_steps = 1
device = "cpu"
[batch]
global_batch_size = {samples}
micro_batch_size = {samples}
[data]
inputs = {inputs}
target = "y"
[model]
kind = "exported"
path = "{folder}/model.pt2"
compiled = "{folder}/model.compiled"
[loss]
kind = "model"
[optimizer]
lr = 0.001
[precision]
compute = "float64"
parameters = "float64"
[batch_norm]
mode = "local"
[checkpoint]
resume = "never"
[probe]
cache = false
max_trials = 3
""")


def squares(output, target):
    output = next(iter(output.values())) if isinstance(output, dict) else output
    return ((output - target) ** 2).sum(), torch.ones((), dtype=output.dtype) * target.numel()


def outputs_of(model, given):
    from zoo import logits_of
    return logits_of(model(**given) if isinstance(given, dict) else model(*given))[0]


def by_name(given):
    return given if isinstance(given, dict) else {f"x{i}": tensor for i, tensor in enumerate(given)}


def eager(model, given, target, backwards=False):
    """PyTorch's gradient of the whole batch; of its samples in another order."""
    from zoo import InFloat64
    model = copy.deepcopy(model).double().train()
    ordered = {name: tensor.flip(0) if backwards else tensor for name, tensor in {**by_name(given), "": target}.items()}
    target = ordered.pop("")
    wide = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in ordered.items()}
    with InFloat64():
        loss, weight = squares(outputs_of(model, wide if isinstance(given, dict) else tuple(wide.values())), target.double())
    (loss / weight).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def natively(program, folder, given, target):
    """The gradient of one step by native code."""
    save_file({**{name: tensor.contiguous() for name, tensor in by_name(given).items()}, "y": target}, folder / "data.safetensors")
    config, saved = folder / "c.toml", folder / "gradient.safetensors"
    config.write_text(CONFIG.format(folder=folder, samples=len(target), inputs=json.dumps(list(by_name(given)))))
    onebatch(str(program), 1, ["verify", config, "--save-gradient", saved, "--quiet"], expect=(0, 5))  # 5: it does not pass by its own measure
    return loaded(saved)


def compiled(program, model, data, dynamic, folder):
    """{worst: relative L2, seconds: of the compiler}."""
    import onebatch as package
    from onebatch.compiling import compile_program
    folder = pathlib.Path(folder)
    target_for = lambda given: torch.randn(outputs_of(copy.deepcopy(model), given).shape)  # noqa: E731
    example = data(EXPORTED)
    target = target_for(example)
    lengths = {"target": {1: "length"}} if dynamic and target.dim() == 3 else {}
    package.export(model, example, folder / "model.pt2", dynamic={**dynamic, **lengths}, loss=squares, targets=(target,), check=False)
    start = time.monotonic()
    compile_program(folder / "model.pt2", precision="float64")
    seconds, worst, order = time.monotonic() - start, 0.0, 0.0
    for samples in BATCHES:
        given = data(samples)
        target = target_for(given)
        truth = eager(model, given, target)
        error = relative_l2(natively(program, folder, given, target), truth)
        worst = error if not error <= worst else worst
        order = max(order, relative_l2(eager(model, given, target, backwards=True), truth))
    return {"worst": worst, "seconds": seconds, "where": f"gradient; the samples' order alone {order:.1e}", "parameters": sum(parameter.numel() for parameter in model.parameters())}
