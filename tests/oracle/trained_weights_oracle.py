#!/usr/bin/env python3
"""Training from trained weights against eager PyTorch in float64: frozen parts, new heads, prefixes, layer-wise rates, on 1 and 2 ranks; new values against PyTorch's own modules; what is refused."""
import json
import math
import pathlib
import sys
import warnings

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from common import batches_of, configuration, onebatch, relative_l2, report, scratch
from exported_models import ConvNet, export, images, labels, vectors

PROGRAM = sys.argv[1]
RATE, DECAY, SAMPLES = 0.05, 0.1, 10
CONFIG = configuration("""
[run]
max_steps = {steps}
seed = {seed}
name = "{name}"
[batch]
global_batch_size = 10
micro_batch_size = {micro}
[model]
kind = "{kind}"
path = "{folder}/{path}"
{model}
[optimizer]
kind = "{optimizer}"
lr = {lr}
{rates}
[precision]
compute = "{precision}"
parameters = "{precision}"
[batch_norm]
mode = "{batch_norm}"
[memory]
recompute = {recompute}
[checkpoint]
resume = "never"
""")
DEFAULTS = {"steps": 3, "seed": 4, "name": "run", "micro": 3, "kind": "exported", "path": "model.pt2", "model": "", "optimizer": "sgd", "lr": RATE, "rates": "", "precision": "float64", "batch_norm": "local",
            "recompute": '"off"'}


class Classifier(nn.Module):
    """A body under a name of its own, and a head, as language models are written."""

    def __init__(self, classes=5):
        super().__init__()
        self.bert = nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
        self.classifier = nn.Linear(16, classes)

    def forward(self, x):
        return self.classifier(self.bert(x))


class Trial:
    """A folder with a model, its data and a run's results."""

    def __init__(self, folder, inputs, targets):
        self.folder = pathlib.Path(folder)
        save_file({"x": inputs.double() if inputs.is_floating_point() else inputs, "y": targets}, self.folder / "data.safetensors")

    def config(self, **settings):
        path = self.folder / "c.toml"
        path.write_text(CONFIG.format(folder=self.folder, **{**DEFAULTS, **settings}))
        return path

    def train(self, ranks=1, expect=(0,), arguments=(), **settings):
        said = onebatch(PROGRAM, ranks, ["train", self.config(**settings), *arguments, "--json", self.folder / "train.json"], expect=expect)
        if expect == (0,):
            self.run = pathlib.Path(json.loads((self.folder / "train.json").read_text())["run_dir"])
            self.batches, steps = batches_of(self.run), self.run / "checkpoints"
            self.last = max(steps.glob("step-*"), key=lambda path: int(path.name.split("-")[1]))
            self.weights, self.state = load_file(self.last / "model.safetensors"), load_file(self.last / "optimizer.safetensors")
        return said


def same(ours, reference, names):
    return all(torch.equal(ours[name], reference[name].to(ours[name].dtype)) for name in names)


def eager(model, start, inputs, targets, batches, frozen, optimizer=None):
    """The same steps from `start`, each batch at once, in float64."""
    model = model.double().train()
    model.load_state_dict({name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in start.items()})
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not any(name.startswith(prefix) for prefix in frozen))
    optimizer = optimizer(model) if optimizer else torch.optim.SGD([p for p in model.parameters() if p.requires_grad], RATE)
    for batch in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs[batch]), targets[batch]).backward()
        optimizer.step()
    return model.state_dict()


def update_error(start, ours, expected):
    """Relative L2 of what the steps have added, to parameters and to running statistics alike."""
    names = [name for name in expected if expected[name].is_floating_point()]
    change = {name: expected[name].double() - start[name].double() for name in names}
    return relative_l2({name: ours[name].double() - start[name].double() for name in names}, change)


def check_new_head():
    """A frozen convolutional body whose BatchNorms go on counting, a new head of another size."""
    failures = 0
    with scratch() as folder:
        torch.manual_seed(3)
        trained, model = ConvNet(), ConvNet()
        trained.fc = nn.Linear(8, 1000)
        body = {name: tensor.clone() for name, tensor in trained.state_dict().items()}
        save_file(body, pathlib.Path(folder) / "weights.safetensors")
        export(model.train(), pathlib.Path(folder) / "model.pt2", images(4))
        inputs, targets = images(SAMPLES)[0].double(), labels(SAMPLES)
        trial = Trial(folder, inputs, targets)
        keys = f'weights = "{folder}/weights.safetensors"\nreinitialize = ["fc.*"]\nfreeze = ["stem.*", "blocks.*"]'
        trial.train(model=keys, lr=0.0, steps=1, micro=SAMPLES, name="zero")
        start = {**body, "fc.weight": trial.weights["fc.weight"], "fc.bias": trial.weights["fc.bias"]}
        bound = 1 / math.sqrt(8)
        drawn = torch.cat([start["fc.weight"].flatten(), start["fc.bias"]])
        failures += report(drawn.abs().max() <= bound and drawn.std() > bound / 3, f"a new head lies within 1/sqrt(fan_in): {drawn.abs().max():.3f} of {bound:.3f}")
        trained_names = {name for name, _ in model.named_parameters() if name.startswith("fc.")}
        for ranks, micro, mode, recompute in ((1, "10", "local", '"off"'), (1, "3", "exact", '"off"'), (2, "[2, 5]", "exact", '"off"'), (1, "10", "local", "2")):
            trial.train(ranks, model=keys, micro=micro, batch_norm=mode, recompute=recompute, name=f"{mode}{ranks}")
            expected = eager(ConvNet(), start, inputs, targets, trial.batches, ("stem.", "blocks."))
            error = update_error(start, trial.weights, expected)
            fixed = [name for name, _ in model.named_parameters() if name not in trained_names]
            whole = set(trial.weights) == set(expected) and same(trial.weights, body, fixed) and trial.weights["stem.1.num_batches_tracked"].item() == 3
            failures += report(error <= 1e-12 and whole, f"a frozen body, a new head, {mode} BatchNorm{', recomputed' if recompute == '2' else ''}, {ranks} rank(s): relative L2 {error:.2e} (at most 1e-12), "
                               f"frozen weights {'are' if whole else 'are NOT'} as they were")
        said = onebatch(PROGRAM, 2, ["verify", trial.config(model=keys, micro="[2, 5]", batch_norm="exact")], expect=(0, 5))
        failures += report("PASS" in said.upper(), "verify passes with a frozen body on 2 ranks", said)
    return failures


def group(model, prefix, **options):
    return {"params": [p for name, p in model.named_parameters() if name.startswith(prefix) and p.requires_grad], **options}


def check_layer_wise_rates():
    """AdamW with decay: frozen layers have no state and no decay, each group its rate. The body comes from a program whose names lack the prefix."""
    failures = 0
    with scratch() as folder:
        torch.manual_seed(4)
        trained, model, path = Classifier(), Classifier(), pathlib.Path(folder)
        export(trained.bert.train(), path / "body.pt2", vectors(4))
        export(model.train(), path / "model.pt2", vectors(4))
        inputs, targets = vectors(SAMPLES)[0].double(), labels(SAMPLES)
        trial = Trial(folder, inputs, targets)
        keys = f'weights = "{folder}/body.pt2"\nweights_prefix = "bert."\nreinitialize = ["classifier.*"]'
        trial.train(model=keys, lr=0.0, steps=1, name="zero")
        start = dict(trial.weights)
        failures += report(same(start, {f"bert.{name}": tensor for name, tensor in trained.bert.state_dict().items()}, [name for name in start if name.startswith("bert.")]),
                           "a program's weights are found behind the model's own prefix")
        rates = f'weight_decay = {DECAY}\ngroups = [{{match = "bert.3.*", lr = 0.01}}, {{match = "classifier.bias", weight_decay = 0.0}}]'

        def adamw(module):
            return torch.optim.AdamW([group(module, "bert.1.", lr=RATE), group(module, "bert.3.", lr=0.01), group(module, "classifier.weight", lr=RATE),
                                      group(module, "classifier.bias", lr=RATE, weight_decay=0.0)], weight_decay=DECAY)

        one_plan = ["--set", "batch.gradient_accumulation_steps=2"]  # of 4 and 1 on two ranks: times have no say in the bits
        for ranks, micro, more in ((1, "3", []), (2, "[4, 1]", one_plan)):
            trial.train(ranks, arguments=more, model=keys + '\nfreeze = ["bert.0.*"]', micro=micro, optimizer="adamw", rates=rates, steps=4, name=f"rates{ranks}")
            expected = eager(Classifier(), start, inputs, targets, trial.batches, ("bert.0.",), adamw)
            error = update_error(start, trial.weights, expected)
            states = {name.split(".", 1)[1] for name in trial.state}
            lean = states == {name for name in start if not name.startswith("bert.0.")} and same(trial.weights, start, ["bert.0.weight", "bert.0.bias"])
            failures += report(error <= 1e-12 and lean, f"layer-wise rates beside a frozen layer, {ranks} rank(s): relative L2 {error:.2e} (at most 1e-12), "
                               f"{'no' if lean else 'STILL'} state of what is frozen")
        once = trial.weights
        settings = {"model": keys + '\nfreeze = ["bert.0.*"]', "micro": "[4, 1]", "optimizer": "adamw", "rates": rates}
        trial.train(2, steps=2, name="rates3", arguments=one_plan, **settings)
        trial.train(2, steps=4, name="rates3", arguments=["--resume", *one_plan], **settings)
        failures += report(same(trial.weights, once, once), "a run with frozen weights goes on with the bits that it would have had")
        said = trial.train(2, steps=4, name="rates3", arguments=["--resume", *one_plan], expect=(2,), **{**settings, "model": keys})
        failures += report('the checkpoint has model.freeze = ["bert.0.*"], not []' in said, "going on with another freeze is refused", said)
        for precision in ("bfloat16", "float16"):
            trial.train(2, model=keys + '\nfreeze = ["bert.*"]', micro="3", precision=precision, name=precision)
            masters = {name for name in trial.state if name.startswith("master.")}
            whole = masters == {"master.classifier.weight", "master.classifier.bias"} and same(trial.weights, start, [name for name in start if name.startswith("bert.")])
            failures += report(whole, f"{precision}: what is frozen is the file's, rounded once, and has no master", str(masters))
    return failures


class Layers(nn.Module):
    """One of each layer that is known, each with a name."""

    def __init__(self):
        super().__init__()
        self.words, self.bag = nn.Embedding(300, 24, padding_idx=3), nn.EmbeddingBag(200, 24, mode="sum")
        self.attention, self.lstm, self.gru = nn.MultiheadAttention(24, 4, batch_first=True), nn.LSTM(24, 12, bidirectional=True, batch_first=True), nn.GRU(24, 24, batch_first=True)
        self.norm, self.rms, self.batch, self.group = nn.LayerNorm(24), nn.RMSNorm(24), nn.BatchNorm1d(24), nn.GroupNorm(4, 24)
        self.conv, self.up, self.act, self.both = nn.Conv1d(24, 48, 3, padding=1, groups=4), nn.ConvTranspose1d(48, 24, 3, padding=1), nn.PReLU(), nn.Bilinear(24, 24, 30)
        self.fc = nn.Linear(30, 5)

    def forward(self, x):
        y = self.norm(self.words(x))
        y = self.gru(self.lstm(y + self.attention(y, y, y, need_weights=False)[0])[0])[0]
        y = self.group(self.batch(self.up(self.act(self.conv(self.rms(y).transpose(1, 2))))))
        return self.fc(self.both(y.mean(2), self.bag(x)))


def check_new_layers():
    """Every layer begins as PyTorch begins it: constants exactly, bounds, spread and padding's row; alike on any rank, of whatever kind the file is."""
    failures = 0
    with scratch() as folder:
        torch.manual_seed(5)
        path, torch_own = pathlib.Path(folder), Layers().state_dict()
        used_up = Layers().train()
        with torch.no_grad():
            for tensor in used_up.state_dict().values():
                tensor.fill_(7)
        tokens = lambda n: (torch.randint(4, 200, (n, 7)),)  # noqa: E731
        export(used_up, path / "model.pt2", tokens(4))
        torch.jit.script(used_up).save(str(path / "model.pt"))
        trial = Trial(folder, tokens(SAMPLES)[0], labels(SAMPLES))
        found = {}
        for ranks, kind, file, seed in ((1, "exported", "model.pt2", 4), (2, "torchscript", "model.pt", 4), (1, "exported", "model.pt2", 5)):
            trial.train(ranks, kind=kind, path=file, seed=seed, model='reinitialize = ["*"]', lr=0.0, steps=1, micro=SAMPLES // ranks, name=f"{kind}{seed}",
                        arguments=["--set", "batch.gradient_accumulation_steps=1"])  # one batch counted, on each rank
            found[kind, seed] = trial.weights
        ours, script, other = found["exported", 4], found["torchscript", 4], found["exported", 5]
        statistics = [name for name in ours if "running" in name or "tracked" in name]  # the step has changed these
        drawn = [name for name in ours if name not in statistics]
        failures += report(same(ours, script, drawn), "a program and a script of the same names begin alike, on 1 and 2 ranks")
        wrong = []
        for name in drawn:
            reference, value = torch_own[name], ours[name]
            bound, number = reference.abs().max().item(), value.numel()
            if "words" in name or "bag" in name:
                body = value[[row for row in range(len(value)) if name != "words.weight" or row != 3]]
                wrong += [name] if abs(body.std().item() - 1) > 0.05 or abs(body.mean().item()) > 0.05 or (name == "words.weight" and value[3].any()) else []
            elif reference.flatten().unique().numel() == 1:
                wrong += [name] if not torch.equal(value, reference.to(value.dtype)) else []
            else:
                exact = uniform_bound(name, reference)
                close = abs(value.std().item() / (exact / math.sqrt(3)) - 1) < 3 / math.sqrt(number) and value.abs().max().item() <= exact and bound <= exact
                wrong += [] if close and not torch.equal(value, other[name]) else [f"{name}: {value.std().item()} within {value.abs().max().item()}, the bound is {exact}"]
        failures += report(not wrong, f"{len(drawn)} new tensors have PyTorch's bounds and spread, and another seed's are others", str(wrong))
        counted = all(found[k]["batch.num_batches_tracked"].item() == 1 and (found[k]["batch.running_var"] < 2).all() and (found[k]["batch.running_mean"].abs() < 1).all() for k in found)
        failures += report(counted, "running statistics begin with 0, 1 and no batches")
    return failures


def uniform_bound(name, tensor):
    """From PyTorch's documentation: 1/sqrt(fan_in), of recurrent layers 1/sqrt(hidden), of attention's projections Glorot's."""
    if name.startswith(("lstm", "gru")):
        return 1 / math.sqrt(12 if name.startswith("lstm") else 24)
    if name.endswith("in_proj_weight"):
        return math.sqrt(6 / (72 + 24))
    fan_in = {"attention.out_proj": 24, "conv": 6 * 3, "up": 24 * 3, "both": 24, "fc": 30}[name.rsplit(".", 1)[0]]
    return 1 / math.sqrt(fan_in)


class Odd(nn.Module):
    """Parameters of no layer: added, multiplied from the left, and one of two layers."""

    def __init__(self):
        super().__init__()
        self.position, self.mix, self.tied = nn.Parameter(torch.zeros(12)), nn.Parameter(torch.randn(12, 12)), nn.Linear(12, 5, bias=False)

    def forward(self, x):
        return self.tied((x + self.position) @ self.mix) + F.embedding(torch.zeros(1, dtype=torch.long), self.tied.weight).sum()


def check_refusals():
    failures = 0
    with scratch() as folder:
        torch.manual_seed(6)
        path, model = pathlib.Path(folder), Classifier().train()
        export(model, path / "model.pt2", vectors(4))
        export(Odd().train(), path / "odd.pt2", vectors(4))
        torch.jit.script(model).save(str(path / "model.pt"))
        state = model.state_dict()
        torch.save(state, path / "pickle.pth")
        save_file({name.removeprefix("bert."): tensor for name, tensor in state.items()}, path / "bare.safetensors")
        save_file({f"module.{name}": tensor for name, tensor in state.items()}, path / "module.safetensors")
        save_file({**state, "classifier.weight": torch.zeros(1000, 16), "pooler.weight": torch.zeros(3)}, path / "head.safetensors")
        save_file({"bert.0.weight": state["bert.0.weight"], **{f"extra{i}.w": torch.zeros(1) for i in range(12)}}, path / "few.safetensors")
        trial = Trial(folder, vectors(SAMPLES)[0], labels(SAMPLES))
        weights = lambda name, more="": {"model": f'weights = "{folder}/{name}"\n{more}'}  # noqa: E731
        cases = [
            ("names with a prefix", weights("module.safetensors"), ['weights_prefix = "module."', "bert.0.weight [16, 12] is missing"]),
            ("names without one", weights("bare.safetensors"), ['weights_prefix = "bert."']),
            ("another head", weights("head.safetensors"), ["classifier.weight is [1000, 16], the model's is [5, 16]", "pooler.weight [3] is not in the model", 'reinitialize = ["classifier.*"]']),
            ("ten of each", weights("few.safetensors"), ["extra0.w [1] is not in the model", "and 2 more are not in the model", "classifier.weight [5, 16] is missing"]),
            ("what the prefix leaves out", weights("head.safetensors", 'weights_prefix = "bert."'), ["left out, since they lack the prefix: classifier.bias", 'reinitialize = ["classifier.*"]']),
            ("a prefix of nothing", weights("head.safetensors", 'weights_prefix = "gpt."'), ['"gpt."', "no name begins with it"]),
            ("a prefix without its dot", weights("head.safetensors", 'weights_prefix = "bert"'), ['"bert."']),
            ("a prefix without weights", {"model": 'weights_prefix = "bert."'}, ["is of names in model.weights"]),
            ("TorchScript", weights("model.pt"), ["TorchScript", "save_file"]),
            ("a pickle", weights("pickle.pth"), ["a pickle of torch.save", "save_file"]),
            ("no file", weights("nothing.safetensors"), ["is no file", "save_file"]),
            ("a pattern of nothing", {"model": 'freeze = ["clasifier.*"]'}, ['"clasifier.*"', "the nearest are classifier.weight, classifier.bias"]),
            ("a new head of nothing", {"model": 'reinitialize = ["head.*"]'}, ['model.reinitialize: no parameter or buffer has a name that "head.*" matches']),
            ("everything frozen", {"model": 'freeze = ["*"]'}, ["leaves nothing to train"]),
            ("rates of what is frozen", {"model": 'freeze = ["bert.*"]', "rates": 'groups = [{match = "bert.0.*", lr = 0.1}]'}, ["names of what is trained are classifier.weight"]),
            ("layers that are none", {"path": "odd.pt2", "model": 'reinitialize = ["*"]'}, ["position [12]: it is read by aten::add", "mix [12, 12]: it is read by aten::matmul", "tied.weight [5, 12]: it is of layers that begin it differently"]),
            ("a pattern that is no list", {"model": 'freeze = "bert.*"'}, ['as ["fc.*"]']),
            ("a model of its own", {"kind": "mlp", "model": 'reinitialize = ["layer0.*"]'}, ["all weights of model.kind", "without model.weights"]),
        ]
        for name, settings, words in cases:
            config = trial.config(**settings)
            if settings.get("kind") == "mlp":
                config.write_text("\n".join(line for line in config.read_text().split("\n") if not line.startswith("path = ") or "data" in line))
            said = " ".join(onebatch(PROGRAM, 1, ["train", config], expect=(2,)).split())
            missing = [word for word in words if word not in said]
            failures += report(not missing, f"refused: {name}", f"without {missing}: {said}")
        said = trial.train(model='freeze = ["bert.*"]', steps=1)
        failures += report("2 of 8 parameters are trained, 85 of 597 numbers" in said, "how much is trained is said", said)
    return failures


def main():
    warnings.filterwarnings("ignore")
    return check_new_head() + check_layer_wise_rates() + check_new_layers() + check_refusals()


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
