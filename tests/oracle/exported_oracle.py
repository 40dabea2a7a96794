#!/usr/bin/env python3
"""Programs of torch.export, trained: loss, gradients and buffers against eager PyTorch in float64, on other batches than the exported one; modes; refusals."""
import json
import pathlib
import sys
import warnings

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from common import batches_of, configuration, loaded, onebatch, relative_l2, report, scratch
from exported_models import (MODELS, Autocast, Clock, ConvNet, Counting, Deciding, DropMlp, Expanded, InPlace, Masked, Masking, Outputs, OwnLoss, SharedDrops, Skips, Squeezing, Standardised, ThroughView, Turned, export, images,
                             labels, masks, padded, times, vectors)  # fmt: skip

PROGRAM = sys.argv[1]
RATE = 0.05
CONFIG = configuration("""
[run]
max_steps = {steps}
[batch]
global_batch_size = {batch}
micro_batch_size = {micro}
[data]
inputs = {inputs}
target = "y"
{validation}
[model]
kind = "exported"
path = "{folder}/model.pt2"
{model}
[optimizer]
lr = 0.05
[precision]
compute = "{compute}"
parameters = "{parameters}"
[batch_norm]
{batch_norm}
[loss]
{loss}
[checkpoint]
resume = "never"
{checkpoint}
[probe]
cache = false
max_trials = 3
{more}
""")
EXAMPLE = 4  # samples that a program is exported with


class Trial:
    """A folder with a program, its data and a configuration."""

    def __init__(self, folder, inputs, targets, validation=None, **settings):
        self.folder = pathlib.Path(folder)
        names = [f"x{i}" for i in range(len(inputs))]
        save_file({**dict(zip(names, inputs)), "y": targets}, self.folder / "data.safetensors")
        if validation:
            save_file({**dict(zip(names, validation[0])), "y": validation[1]}, self.folder / "validation.safetensors")
        self.settings = {"steps": 2, "batch": len(targets), "micro": 3, "inputs": json.dumps(names), "model": "", "compute": "float64", "parameters": "float64", "batch_norm": "", "loss": "", "checkpoint": "",
                         "more": "", "validation": f'[data.validation]\npath = "{self.folder}/validation.safetensors"' if validation else "", **settings}

    def config(self, **settings):
        path = self.folder / "c.toml"
        path.write_text(CONFIG.format(folder=self.folder, **{**self.settings, **settings}))
        return path

    def train(self, ranks=1, expect=(0,), **settings):
        said = onebatch(PROGRAM, ranks, ["train", self.config(**settings), "--quiet", "--json", self.folder / "train.json"], expect=expect)
        if expect != (0,):
            return said
        self.result = json.loads((self.folder / "train.json").read_text())
        run = pathlib.Path(self.result["run_dir"])
        file = max((run / "checkpoints").glob("step-*"), key=lambda path: int(path.name.split("-")[1])) / "model.safetensors"
        self.weights, self.batches = loaded(file), batches_of(run)
        return said


def in_float64(inputs):
    return tuple(x.double() if x.is_floating_point() else x for x in inputs)


def eager(model, inputs, targets, batches):
    """The same steps of SGD, each batch at once. Where a program is float32, what its code makes is float64 here."""
    kept = torch.float32, torch.Tensor.float
    torch.set_default_dtype(torch.float64)
    torch.float32, torch.Tensor.float = torch.float64, torch.Tensor.double
    model = model.double().train()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], RATE)
    for batch in batches:
        optimizer.zero_grad()
        if isinstance(model, OwnLoss):
            total, weight = model(*(x[batch] for x in inputs), targets[batch])
            loss = total / weight
        else:
            returned = model(*(x[batch].clone() for x in inputs))
            loss = F.cross_entropy(returned["logits"] if isinstance(returned, dict) else returned, targets[batch])
        loss.backward()
        optimizer.step()
    torch.float32, torch.Tensor.float = kept
    torch.set_default_dtype(torch.float32)
    return model


def update_error(before, ours, model):
    """Of what the steps have added to parameters, or to buffers where that is more; whole numbers are to be the same."""
    reference, buffers = dict(model.state_dict()), {name for name, _ in model.named_buffers()}
    errors = []
    for names in ([k for k in reference if k not in buffers], [k for k in reference if k in buffers and reference[k].is_floating_point()]):
        change = {k: reference[k].double() - before[k].double() for k in names}
        if any(tensor.any() for tensor in change.values()):
            errors.append(relative_l2({k: ours[k].double() - before[k].double() for k in names}, change))
    whole = all(torch.equal(ours[k], reference[k]) for k in buffers & set(reference) if not reference[k].is_floating_point())
    return max(errors) if whole else float("inf")


def check_models():
    failures = 0
    for name, (make, data, target) in MODELS.items():
        with scratch() as folder:
            torch.manual_seed(3)
            model = make().train()
            for parameter in model.parameters():
                parameter.data = parameter.data.float()
            export(model, pathlib.Path(folder) / "model.pt2", data(EXAMPLE))
            inputs, targets = data(10), target(10)
            if isinstance(model, OwnLoss):
                inputs, targets = inputs[:1], inputs[1]
            trial = Trial(folder, in_float64(inputs), targets, micro={ConvNet: 10, InPlace: 10, Squeezing: 1}.get(type(model), 3), loss='kind = "model"' if isinstance(model, OwnLoss) else "")
            before = {k: v.clone() for k, v in model.state_dict().items()}
            trial.train()
            reference = eager(model, in_float64(inputs), targets, trial.batches)
            same = set(trial.weights) == set(before)
            error = update_error(before, trial.weights, reference) if same else float("inf")
            failures += report(same and error <= 1e-12, f"{name}: two steps of 10 samples, relative L2 of what they change {error:.2e} (at most 1e-12)",
                               "" if same else f"{sorted(trial.weights)} against {sorted(before)}")
    return failures


def trial_of(folder, seed, make, data, samples, **settings):
    """A model, data and a trial of its program; the data are float64, but for whole numbers."""
    torch.manual_seed(seed)
    model = make().train()
    export(model, pathlib.Path(folder) / "model.pt2", data(EXAMPLE))
    inputs, targets = in_float64(data(samples)), labels(samples)
    return model, inputs, targets, Trial(folder, inputs, targets, **settings)


def conv_trial(folder, **settings):
    return trial_of(folder, 5, ConvNet, images, 11, **settings)


def check_modes():
    failures = 0
    for ranks, micro, what, settings in ((2, "[2, 5]", "exact BatchNorm on 2 uneven ranks", {"batch_norm": 'mode = "exact"'}),
                                         (1, "3", "exact BatchNorm, accumulated", {"batch_norm": 'mode = "exact"'}),
                                         (1, "11", "recomputation", {"more": "[memory]\nrecompute = 2"})):
        with scratch() as folder:
            model, inputs, targets, trial = conv_trial(folder, micro=micro, **settings)
            before = {k: v.clone() for k, v in model.state_dict().items()}
            trial.train(ranks)
            error = update_error(before, trial.weights, eager(model, inputs, targets, trial.batches))
            failures += report(error <= 1e-12, f"{what}: relative L2 against one batch {error:.2e} (at most 1e-12)")
    return failures + check_in_place() + check_standardised() + check_recomputed_bits() + check_dropout() + check_shared_dropout() + check_bfloat16() + check_masks() + check_verify()


def check_in_place():
    """Inputs that a forward changes, in micro-batches of several sizes."""
    failures = 0
    for ranks, micro, settings in ((1, 4, {"batch_norm": 'mode = "exact"'}), (2, "[2, 3]", {"batch_norm": 'mode = "exact"'}), (2, "[5, 6]", {"batch_norm": 'mode = "sync"'}),
                                   (1, 11, {"more": "[memory]\nrecompute = 2"})):
        with scratch() as folder:
            model, inputs, targets, trial = trial_of(folder, 17, InPlace, vectors, 11, micro=micro, **settings)
            before = {k: v.clone() for k, v in model.state_dict().items()}
            trial.train(ranks)
            error = update_error(before, trial.weights, eager(model, inputs, targets, trial.batches))
            failures += report(error <= 1e-12, f"inputs changed in place, {ranks} rank(s), micro-batches of {micro}, {settings}: relative L2 {error:.2e} (at most 1e-12)")
    return failures


def check_standardised():
    """Weights that batch_norm standardises are no BatchNorm of samples: any mode is the same, on any plan."""
    failures = 0
    with scratch() as folder:
        model, inputs, targets, _ = trial_of(folder, 18, Standardised, images, 10)
        trial = Trial(folder, inputs, targets, validation=(inputs, targets))
        before = {k: v.clone() for k, v in model.state_dict().items()}
        for ranks, micro, batch_norm in ((1, 3, ""), (2, "[1, 2]", 'mode = "exact"'), (1, 3, "frozen = true")):
            said = trial.train(ranks, micro=micro, batch_norm=batch_norm)
            error = update_error(before, trial.weights, eager(model, inputs, targets, trial.batches))
            model.load_state_dict(before)
            failures += report(error <= 1e-12 and "BatchNorm" not in said, f"standardised weights, {ranks} rank(s), {batch_norm!r}: relative L2 {error:.2e} (at most 1e-12)", said)
        said = onebatch(PROGRAM, 1, ["check", pathlib.Path(folder) / "model.pt2"])
        failures += report("BatchNorm" not in said, "a program with standardised weights has no BatchNorm", said)
    return failures


def check_recomputed_bits():
    """A region in another type, one result that several segments read several times, a gradient laid out otherwise than its value, and a write through a view: the same bits."""
    failures = 0
    for model, segments in ((Autocast(), 2), (Skips(), 3), (Turned(), 2), (ThroughView(), 2), (ThroughView(), 3)):
        with scratch() as folder:
            torch.manual_seed(19)
            export(model.train(), pathlib.Path(folder) / "model.pt2", vectors(EXAMPLE))
            trial = Trial(folder, vectors(10), labels(10), compute="float32", parameters="float32", micro=10)
            found = {}
            for more in ("", f"[memory]\nrecompute = {segments}"):
                trial.train(more=more)
                found[more] = trial.weights
            plain, again = found.values()
            failures += report(all(torch.equal(plain[k], again[k]) for k in plain), f"{type(model).__name__}, recomputed: the same bits")
    return failures


def check_dropout():
    with scratch() as folder:
        torch.manual_seed(6)
        export(DropMlp().train(), pathlib.Path(folder) / "model.pt2", vectors(EXAMPLE))
        trial = Trial(folder, in_float64(vectors(12)), labels(12))
        trial.train(1, micro=12)
        one = trial.weights
        trial.train(3, micro="[1, 3, 2]")
        error = relative_l2(trial.weights, one)
        return report(error <= 1e-14, f"dropout on 3 ranks and on 1: relative L2 {error:.2e} (at most 1e-14)")


def check_shared_dropout():
    """Micro-batches of 4 divide the four positions: they are no samples' all the same. In evaluation no path is dropped. With exact BatchNorm all is drawn again."""
    failures = 0
    for normed, settings in ((False, {}), (True, {"batch_norm": 'mode = "exact"'})):
        with scratch() as folder:
            torch.manual_seed(16)
            model = SharedDrops(normed).train()
            start = model.positions.detach().double()
            export(model, pathlib.Path(folder) / "model.pt2", vectors(EXAMPLE))
            held, expected = in_float64(vectors(9)), labels(9)
            trial = Trial(folder, in_float64(vectors(12)), labels(12), validation=(held, expected), **settings)
            trial.train(1, micro=12)
            one = trial.weights
            for ranks, micro, more in ((1, 4, ""), (1, 1, ""), (3, "[1, 3, 2]", ""), (1, 4, "" if normed else "[memory]\nrecompute = 2")):
                trial.train(ranks, micro=micro, more=more)
                error = relative_l2(trial.weights, one)
                failures += report(error <= 1e-14, f"dropouts of positions, of a second dimension and of a path, {ranks} rank(s), micro-batches of {micro}, {settings} {more!r}: relative L2 {error:.2e} (at most 1e-14)")
            model.double().load_state_dict(trial.weights)
            loss, found = F.cross_entropy(model.eval()(held[0]), expected).item(), validation_loss(trial)
            failures += report(abs(found - loss) <= 1e-12 * abs(loss), f"validation's loss with a path {found!r} is that of model.eval(): {loss!r}")
            kept = (one["positions"] != start).double().mean().item()
            failures += report(0.4 < kept < 0.98, f"{kept:.0%} of the positions were kept in one of two steps")
    return failures


def check_bfloat16():
    failures = 0
    for parameters in ("float32", "bfloat16"):
        with scratch() as folder:
            *_, trial = conv_trial(folder, micro=11, compute="bfloat16", parameters=parameters)
            trial.train()
            failures += report(all(torch.isfinite(v.float()).all() for v in trial.weights.values()), f"bfloat16 with {parameters} parameters runs")
    return failures


def check_masks():
    """The least number of float32, which a program says, is that of what the run computes in."""
    failures = 0
    with scratch() as folder:
        model, inputs, targets, trial = trial_of(folder, 10, Masked, padded, 12, micro=5, steps=4)
        trial.train()
        before = {k: v.clone() for k, v in model.state_dict().items()}
        exact = eager(model, inputs, targets, trial.batches).state_dict()
        for compute, parameters in (("bfloat16", "float32"), ("bfloat16", "bfloat16"), ("float16", "float32"), ("float16", "float16")):
            trial.train(compute=compute, parameters=parameters)
            start = {k: v.to(trial.weights[k].dtype) for k, v in before.items()}
            error = relative_l2({k: trial.weights[k].double() - start[k].double() for k in exact}, {k: exact[k] - before[k] for k in exact})
            limit = 0.05 if parameters == "float32" else 0.3  # four steps are a few units of 16 bits
            failures += report(error <= limit, f"masks in {compute} with {parameters} parameters: what four steps change is off by {error:.1e} (at most {limit})")
    return failures


def check_verify():
    with scratch() as folder:
        torch.manual_seed(7)
        export(DropMlp().train(), pathlib.Path(folder) / "model.pt2", vectors(EXAMPLE))
        trial = Trial(folder, in_float64(vectors(12)), labels(12))
        said = onebatch(PROGRAM, 2, ["verify", trial.config(micro="[2, 3]")], expect=(0, 5))
        return report("PASS" in said.upper(), "verify passes on 2 ranks", said)


def validation_loss(trial):
    return trial.result["validation"]["loss"] if "validation" in trial.result else trial.result["validation_loss"]


def check_evaluation():
    """Dropout off, running statistics used, counters still."""
    failures = 0
    with scratch() as folder:
        torch.manual_seed(8)
        model = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 5)).train()
        export(model, pathlib.Path(folder) / "model.pt2", vectors(EXAMPLE))
        held, expected = in_float64(vectors(9)), labels(9)
        trial = Trial(folder, in_float64(vectors(10)), labels(10), validation=(held, expected), micro=10, steps=3)
        trial.train()
        model.double().load_state_dict(trial.weights)
        loss = F.cross_entropy(model.eval()(held[0]), expected).item()
        found = validation_loss(trial)
        failures += report(abs(found - loss) <= 1e-12 * abs(loss), f"validation's loss {found!r} is that of model.eval(): {loss!r}")
        failures += report(trial.weights["1.num_batches_tracked"].item() == 3, "BatchNorm has counted training's batches alone")
    return failures


def refusals():
    """What is refused: how the file is made, what is said."""
    def program(model, data=vectors, **options):
        return lambda file: export(model, file, data(EXAMPLE), **options)

    class Custom(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(12, 5)

        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda y: self.fc(y), lambda y: self.fc(y) * 2, (x,))

    class Nothing(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(12, 5).requires_grad_(False)

        def forward(self, x):
            return self.fc(x)

    yield "eval mode", program(DropMlp().eval()), {}, ("eval() mode", "model.train()")
    yield "BatchNorm in eval mode", program(nn.Sequential(nn.Linear(12, 5), nn.BatchNorm1d(5)).eval()), {}, ("switched to evaluation", "batch_norm.frozen = true")
    yield "a fixed batch", program(DropMlp().train(), dynamic=({},)), {}, ("dimension 0", 'dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=4096)},)')
    yield "a fixed dimension", program(nn.Linear(13, 5).train(), lambda n: (torch.randn(n, 13),)), {}, ("dimension 1", "fixed at 13")
    yield "a limited batch", program(DropMlp(0.0).train(), dynamic=({0: torch.export.Dim("batch", min=1, max=5)},)), {"micro": 10}, ("exported for 1 to 5", "is given 10")
    yield "another type", program(nn.Sequential(nn.Embedding(12, 5), nn.Flatten(), nn.Linear(60, 5)).train(), lambda n: (torch.randint(0, 5, (n, 12)),)), {}, ("exported as Long", "Double")
    yield "cond", program(Custom().train()), {}, ("torch.ops.higher_order.cond", "torch.autocast")
    yield "nothing to train", program(Nothing().train()), {}, ("no parameter", "requires_grad_()")
    yield "an expanded buffer", program(Expanded().train()), {}, ("is expanded", ".clone()")
    yield "no such output", program(Outputs().train()), {"model": 'output = "nothing"'}, ('model.output = "nothing"', '"logits"')
    yield "two inputs for one", program(DropMlp().train()), {"inputs": '["x0", "x0"]'}, ("takes 1 tensor(s)",)
    yield "no file", lambda file: None, {}, ("is no file", "torch.export.save")
    yield "TorchScript", lambda file: torch.jit.script(DropMlp()).save(str(file)), {}, ("it is TorchScript",)
    yield "not a zip file", lambda file: file.write_bytes(b"no zip file"), {}, ("no whole zip file",)
    yield "a buffer that counts", program(Counting().train()), {"micro": 3}, ("calls",)


def check_refusals():
    failures = 0
    for name, make, settings, words in refusals():
        with scratch() as folder:
            make(pathlib.Path(folder) / "model.pt2")
            trial = Trial(folder, in_float64(vectors(10)), labels(10))
            said = " ".join(trial.train(expect=(2,), **settings).split())
            missing = [word for word in words if word not in said]
            failures += report(not missing, f"refused: {name}", f"without {missing}: {said}")
    return failures + check_ways()


def check_ways():
    """A forward that decides by a length is refused lengths of the other way, and takes those of the example's."""
    failures = 0
    with scratch() as folder:
        torch.manual_seed(20)
        model = Deciding().train()
        export(model, pathlib.Path(folder) / "model.pt2", (torch.randn(EXAMPLE, 6, 3),), dynamic=({0: torch.export.Dim("batch", min=1, max=4096), 1: torch.export.Dim.AUTO},))
        inputs, targets = in_float64((torch.randn(10, 8, 3),)), labels(10)
        before = {k: v.clone() for k, v in model.state_dict().items()}
        trial = Trial(folder, inputs, targets)
        trial.train()
        error = update_error(before, trial.weights, eager(model, inputs, targets, trial.batches))
        failures += report(error <= 1e-12, f"a forward that decides by a length, on the example's way: relative L2 {error:.2e} (at most 1e-12)")
        said = " ".join(Trial(folder, in_float64((torch.randn(10, 7, 3),)), targets).train(expect=(2,)).split())
        failures += report("(L['x'].size()[1] % 2) == 0" in said and ", 7, 3]" in said, "refused: lengths of the other way", said)
    return failures


def check_numbers_beyond():
    """Whole numbers are stored in another type than the program takes; one is too large for it."""
    failures = 0
    for place, most, word in ((1, 1, "Bool"), (2, 255, "Byte")):
        with scratch() as folder:
            export(Masking().train(), pathlib.Path(folder) / "model.pt2", masks(EXAMPLE))
            inputs = [x.long() if not x.is_floating_point() else x for x in masks(10)]
            Trial(folder, inputs, labels(10)).train()
            inputs[place][7, 5] = most + 1
            said = Trial(folder, inputs, labels(10)).train(expect=(2,))
            failures += report(f"is {word}, which holds 0 to {most}, and is given {most + 1}" in " ".join(said.split()), f"refused: {most + 1} for {word}", said)
    return failures


def check_own_types():
    """Buffers and constants in float64 of a program in float32: against eager PyTorch as it is, in float32."""
    failures = 0
    with scratch() as folder:
        torch.manual_seed(12)
        model = Clock().train()
        export(model, pathlib.Path(folder) / "model.pt2", times(EXAMPLE))
        inputs, targets = times(10), labels(10)
        before = {k: v.clone() for k, v in model.state_dict().items()}
        trial = Trial(folder, inputs, targets)
        for compute, parameters, limit in (("float64", "float64", 1e-6), ("float32", "float32", 1e-6), ("bfloat16", "float32", 0.1)):
            trial.train(compute=compute, parameters=parameters)
            model.load_state_dict(before)
            optimizer = torch.optim.SGD(model.parameters(), RATE)
            for batch in trial.batches:
                optimizer.zero_grad()
                F.cross_entropy(model(inputs[0][batch]), targets[batch]).backward()
                optimizer.step()
            error = update_error(before, trial.weights, model)
            kept = trial.weights["start"].dtype == torch.float64 and torch.equal(trial.weights["start"], before["start"])
            failures += report(kept and error <= limit, f"float64 in a program of float32, run in {compute}: relative L2 of what two steps change {error:.1e} (at most {limit}), the buffer {trial.weights['start']}")
    return failures


def check_outputs():
    """One that is named; frozen BatchNorm."""
    failures = 0
    with scratch() as folder:
        torch.manual_seed(9)
        model, inputs, targets, trial = conv_trial(folder, batch_norm="frozen = true")
        before = {k: v.clone() for k, v in model.state_dict().items()}
        trial.train()
        for part in model.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.train = lambda mode=True: None
                part.training = False
        error = update_error(before, trial.weights, eager(model, inputs, targets, trial.batches))
        failures += report(error <= 1e-12, f"frozen BatchNorm: relative L2 {error:.2e} (at most 1e-12)")
    with scratch() as folder:
        export(Outputs().train(), pathlib.Path(folder) / "model.pt2", vectors(EXAMPLE))
        trial = Trial(folder, in_float64(vectors(10)), torch.randint(0, 8, (10,)), model='output = "hidden"')
        trial.train()
        failures += report("b.weight" in trial.weights, "an output that is named is trained")
    return failures


def main():
    warnings.filterwarnings("ignore")
    return check_models() + check_modes() + check_evaluation() + check_outputs() + check_numbers_beyond() + check_own_types() + check_refusals()


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
