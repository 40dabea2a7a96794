#!/usr/bin/env python3
"""`onebatch check`: an exported program's outputs, gradients and buffers against eager PyTorch in float64; what is said of a program; mistakes."""
import contextlib
import json
import pathlib
import random
import sys
import warnings

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from common import onebatch, report, scratch
from exported_models import MODELS, Counting, DropMlp, OwnLoss, export, images, tokens, vectors
from mutated_programs import DAMAGES, FORGERIES

PROGRAM = sys.argv[1]
MOST = 1e-12
COMPARED = ("conv_net", "lstm", "gpt", "two_inputs", "outputs", "own_loss")


def check(*arguments, expect=(0,)):
    return onebatch(PROGRAM, 1, ["check", *arguments], expect=expect)


@contextlib.contextmanager
def all_in_float64():
    """Where a model's code says float32, it gets float64, as the program does."""
    kept = torch.float32
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float64
    yield
    torch.float32 = kept
    torch.set_default_dtype(torch.float32)


def eager(model, inputs):
    """What the program is to write."""
    model.zero_grad()
    with all_in_float64():
        returned = model(*inputs)
    returned = list(returned.values()) if isinstance(returned, dict) else list(returned) if isinstance(returned, tuple) else [returned]
    outputs = [output for output in returned if isinstance(output, torch.Tensor)]
    loss = outputs[0] if isinstance(model, OwnLoss) else sum((output**2).sum() for output in outputs if output.requires_grad)
    loss.backward()
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {**{f"output.{i}": output.detach() for i, output in enumerate(outputs)},
            **{f"gradient.{name}": tensor.grad for name, tensor in parameters.items() if tensor.grad is not None},
            **{f"buffer.{name}": tensor for name, tensor in model.state_dict().items() if name not in parameters}}


def difference(found, wanted):
    """The largest relative L2 of a tensor."""
    worst = 0.0
    for name, tensor in wanted.items():
        off = (found[name] - tensor.double()).norm().item()
        worst = max(worst, off / tensor.double().norm().item() if tensor.any() else off)
    return worst


def check_numbers():
    failures = 0
    for name in COMPARED:
        make, data, target = MODELS[name]
        with scratch() as folder:
            folder = pathlib.Path(folder)
            torch.manual_seed(11)
            model = make().train()
            export(model, folder / "model.pt2", data(4))
            before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
            given = [tensor.double() if tensor.is_floating_point() else tensor for tensor in data(7)]
            # Names in another order than the file's: it is that of the names which counts.
            save_file({f"{i:03d}": given[i] for i in reversed(range(len(given)))}, folder / "given.safetensors")
            for phase in ("training", "evaluation"):
                check(folder / "model.pt2", "--inputs", folder / "given.safetensors", "--phase", phase, "--save", folder / "found.safetensors", "--quiet",
                      *(["--loss"] if name == "own_loss" else []))
                found = load_file(folder / "found.safetensors")
                model.load_state_dict(before)
                wanted = eager(model.double().train(phase == "training"), given)
                same = set(found) == set(wanted) and all(tensor.dtype == torch.float64 for tensor in found.values())
                off = difference(found, wanted) if same else float("inf")
                failures += report(same and off <= MOST, f"{name} in {phase}: {len(wanted)} tensors, relative L2 {off:.1e} (at most {MOST:.0e})",
                                   "" if same else f"{sorted(found)} against {sorted(wanted)}")
    return failures


def look(folder, model, data, **options):
    """What is said of a program, and its document."""
    export(model.train(), folder / "model.pt2", data(4), **options)
    said = check(folder / "model.pt2", "--json", folder / "look.json")
    return said, json.loads((folder / "look.json").read_text())


class Noisy(nn.Module):
    """Layers that drop nothing beside those that do, noise of no sample, and two sizes that may be any."""

    def __init__(self):
        super().__init__()
        self.embed, self.drop, self.keep = nn.Embedding(11, 4), nn.Dropout(0.2), nn.Dropout(0.0)
        self.rnn, self.norm, self.fc = nn.LSTM(4, 4, 2, dropout=0.3, batch_first=True), nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.fc.bias.requires_grad_(False)

    def forward(self, words):
        y = self.keep(self.drop(self.drop(self.embed(words))))
        y = self.rnn((y + torch.rand_like(y)).mean(1, keepdim=True))[0].mean(1)
        return self.fc(self.norm(y))


def check_looks():
    failures = 0
    with scratch() as folder:
        folder = pathlib.Path(folder)
        model = Noisy()
        length, batch = torch.export.Dim("length", min=3, max=512), torch.export.Dim("batch", min=1)
        said, found = look(folder, model, tokens, dynamic=({0: batch, 1: length},))
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        wanted = {"inputs": [{"name": "words", "type": "int64", "sizes": ["batch", "size1"]}], "outputs": [{"name": "0", "type": "float32", "sizes": ["batch", "3"]}], "output": "0",
                  "sizes": [{"name": "batch", "least": 1, "most": None}, {"name": "size1", "least": 3, "most": 512}], "type": "float32",
                  "parameter_tensors": len(list(model.parameters())), "parameters": trained + 3, "trained_parameters": trained, "batch_norm_layers": ["norm"],
                  "random": [{"operator": "aten::dropout", "calls": 2, "drawn_by": "sample"}, {"operator": "aten::rand_like", "calls": 1, "drawn_by": "generator"},
                             {"operator": "aten::lstm", "calls": 1, "drawn_by": "sample"}], "changed_buffers": []}
        wrong = {key: found.get(key) for key in wanted if found.get(key) != wanted[key]}
        failures += report(not wrong, "a program is described", f"{wrong} in {said}")
        failures += report("words" in said and "[batch, size1]" in said and len(said.splitlines()) <= 24, "and shown on one screen", said)
        said, found = look(folder, Counting(), vectors)
        failures += report(found["changed_buffers"] == ["calls"] and "calls in each forward" in said, "a buffer that every forward changes is named", said)
        said, found = look(folder, MODELS["outputs"][0](), vectors)
        failures += report([one["name"] for one in found["outputs"]] == ["hidden", "logits"] and 'takes "logits"' in said, "several outputs are named", said)
    return failures


def mistakes(folder):
    """What is wrong, the arguments, what is said."""
    file, given, save = folder / "model.pt2", folder / "given.safetensors", folder / "found.safetensors"
    export(DropMlp(0.0).train(), file, vectors(4))
    save_file({"000": torch.randn(5, 12)}, given)
    run = lambda inputs=given, **changes: [changes.get("file", file), "--inputs", inputs, "--save", changes.get("save", save)]  # noqa: E731
    yield "no such program", [folder / "nothing.pt2"], ("nothing.pt2 is no file", "torch.export.save")
    torch.jit.script(DropMlp()).save(str(folder / "script.pt"))
    yield "TorchScript", [folder / "script.pt"], ("script.pt", 'model.kind = "torchscript"')
    export(DropMlp().train(), folder / "fixed.pt2", vectors(4), dynamic=({},))
    yield "a fixed batch", [folder / "fixed.pt2"], ("4 samples at a time", 'torch.export.Dim("batch"')
    export(DropMlp().eval(), folder / "eval.pt2", vectors(4))
    yield "eval mode", [folder / "eval.pt2"], ("model.train()",)
    save_file({"000": torch.randn(5, 12), "001": torch.randn(5, 12)}, folder / "two.safetensors")
    yield "two inputs for one", run(folder / "two.safetensors"), ("takes 1 tensor(s) (x)", "is given 2", "two.safetensors")
    save_file({"000": torch.ones(5, 12, dtype=torch.long)}, folder / "whole.safetensors")
    yield "another type", run(folder / "whole.safetensors"), ("exported as Float", "is given Long")
    save_file({"000": torch.randn(5, 13)}, folder / "wide.safetensors")
    yield "another size", run(folder / "wide.safetensors"), ("dimension 1", "fixed at 12", "given 13")
    yield "no such inputs", run(folder / "nothing.safetensors"), ("nothing.safetensors",)
    yield "inputs that are no safetensors", run(file), ("not a whole safetensors file",)
    yield "nowhere to write", run(save=folder / "no" / "found.safetensors"), ("--save", "there is no folder")
    yield "inputs without a result", [file, "--inputs", given], ("--save",)
    yield "a phase that is none", [*run(), "--phase", "test"], ("--phase",)
    yield "no loss of its own", [*run(), "--loss"], ("returns 1 tensor(s)", "loss's sum")


def check_mistakes():
    failures = 0
    with scratch() as name:
        folder = pathlib.Path(name)
        for what, arguments, words in mistakes(folder):
            said = " ".join(check(*arguments, expect=(2,)).split())
            missing = [word for word in words if word not in said]
            failures += report(not missing, f"refused: {what}", f"without {missing}: {said}")
        left = [path.name for path in folder.iterdir() if "found" in path.name]
        failures += report(not left, "and nothing is left behind", str(left))
    return failures


def check_damaged():
    """Each is refused by name, or runs: one of each kind."""
    failures, refused = 0, 0
    draw = random.Random(5)
    with scratch() as name:
        folder = pathlib.Path(name)
        export(MODELS["conv_net"][0]().train(), folder / "whole.pt2", images(4))
        for kind in (*DAMAGES, *dict.fromkeys(FORGERIES)):
            kind(draw, folder / "model.pt2", folder / "whole.pt2")
            said = check(folder / "model.pt2", "--quiet", expect=(0, 2))
            is_refused = "model.pt2: a program" not in said
            refused += is_refused
            failures += report(not is_refused or "model.pt2" in said, f"{kind.__name__}: {'refused by name' if is_refused else 'read'}", said)
    return failures + report(refused >= 5, f"{refused} damaged ones are refused")


def main():
    warnings.filterwarnings("ignore")
    return check_numbers() + check_looks() + check_mistakes() + check_damaged()


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
