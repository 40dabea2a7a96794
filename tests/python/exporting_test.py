"""export(): what it writes is trained by the program as PyTorch trains the model; what it refuses, in plain words."""
import collections
import dataclasses
import subprocess
import sys
import types
import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import onebatch as package  # noqa: E402
from onebatch import __main__ as commands  # noqa: E402
from onebatch.sources import image_shape  # noqa: E402
from program import LOADER, ROOT, SGD_IN_FLOAT64, Scratch  # noqa: E402

CONFIG = """
[run]
max_steps = 2
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = 10
micro_batch_size = 4
[data]
kind = "safetensors"
path = "{folder}/train.safetensors"
inputs = {inputs}
[model]
kind = "exported"
path = "{folder}/model.pt2"
""" + SGD_IN_FLOAT64
WORDS = 7


class ModelOutput(collections.OrderedDict):
    """As Hugging Face's: a dictionary with to_tuple(), whose parts are attributes."""

    def to_tuple(self):
        return tuple(self.values())


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: torch.Tensor
    word: str = "kept out"


class Config:
    use_cache = True


class Sentences(nn.Module):
    """Any length up to that of its positions; returns what `make` makes of logits and hidden states."""

    def __init__(self, make=lambda logits, hidden: logits):
        super().__init__()
        self.words, self.positions, self.head, self.make = nn.Embedding(WORDS, 6), nn.Parameter(torch.randn(12, 6)), nn.Linear(6, WORDS), make

    def forward(self, input_ids, attention_mask=None):
        hidden = torch.tanh(self.words(input_ids) + self.positions[:input_ids.shape[1]])
        if attention_mask is not None:
            hidden = hidden * attention_mask.unsqueeze(2)
        return self.make(self.head(hidden.cumsum(1)), hidden)


class HuggingFace(Sentences):
    """Logits are not the first of what it returns, and it would keep a cache that no program can return."""

    def __init__(self):
        super().__init__(lambda logits, hidden: ModelOutput(loss=None, hidden_states=hidden, logits=logits))
        self.config = Config()

    def forward(self, input_ids, attention_mask=None):
        if self.config.use_cache:
            raise TypeError("a cache")
        return super().forward(input_ids, attention_mask)


class Grouped(nn.Module):
    """Heads that are repeated, as in Llama: of their lengths PyTorch finds min(8 n, 16 n) = 8 n out, and cannot prove it."""

    def __init__(self):
        super().__init__()
        self.words, self.heads = nn.Embedding(WORDS, 6), nn.Linear(6, 16, bias=False)

    def forward(self, input_ids):
        samples, length = input_ids.shape
        heads = self.heads(self.words(input_ids)).view(samples, length, 2, 8).transpose(1, 2)
        repeated = heads[:, :, None].expand(samples, 2, 2, length, 8).reshape(samples, 4, length, 8)
        return (repeated @ repeated.transpose(2, 3) @ repeated).sum(1)


def words(samples, length):
    return torch.randint(0, WORDS, (samples, length))


def weighted_loss(output, target):
    """Labels of 0 weigh half."""
    weights = torch.where(target == 0, 0.5, 1.0).to(output.dtype)
    return (F.cross_entropy(output.flatten(0, 1), target.flatten(), reduction="none") * weights.flatten()).sum(), weights.sum()


def mean_loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten(), reduction="sum"), torch.tensor(float(target.numel()))


def eagerly(model, inputs, target, loss):
    """Two steps of plain SGD over all samples, in float64."""
    model = model.double().train()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        output = model(*inputs)
        output = output.logits if hasattr(output, "logits") else output["logits"] if isinstance(output, dict) else output
        total, weight = loss(output, target)
        (total / weight).backward()
        optimizer.step()
    return model.state_dict()


def trained(onebatch, folder, inputs, target, more=""):
    package.save_dataset(folder / "train.safetensors", **inputs, y=target)
    scratch = Scratch(folder, CONFIG.replace("{folder}", str(folder)).replace("{inputs}", str(list(inputs))) + more)
    onebatch.run(1, "train", scratch.config)
    return package.load_checkpoint(scratch.runs / "run")


def error_of(found, expected):
    assert set(found) == set(expected)
    off = sum(float((found[name].double() - expected[name].double()).square().sum()) for name in expected)
    return (off / sum(float(tensor.double().square().sum()) for tensor in expected.values())) ** 0.5


TRAINED = {
    "a Hugging Face output": (HuggingFace, ["input_ids", "attention_mask"], {"input_ids": {1: "length"}, "attention_mask": {1: "length"}}),
    "a dataclass": (lambda: Sentences(Output), ["input_ids"], {"input_ids": {1: "length"}}),
    "a named tuple": (lambda: Sentences(collections.namedtuple("Outputs", ["logits", "hidden"])), ["input_ids"], {"input_ids": {1: "length"}}),
    "heads that are repeated": (Grouped, ["input_ids"], {"input_ids": {1: "length"}}),
    "a dictionary": (lambda: Sentences(lambda logits, hidden: {"name": "x", "hidden": hidden, "logits": logits}), ["input_ids"], {"input_ids": {-1: "length"}}),
}


@pytest.mark.parametrize("make, names, dynamic", TRAINED.values(), ids=TRAINED)
@pytest.mark.filterwarnings("ignore:the model takes a length of 1 to 12 alone")
def test_a_program_trains_as_the_model_does_on_other_sizes(make, names, dynamic, onebatch, tmp_path):
    torch.manual_seed(2)
    model = make()
    examples = {"input_ids": words(3, 4), "attention_mask": torch.ones(3, 4, dtype=torch.long)}
    package.export(model, {name: examples[name] for name in names}, tmp_path / "model.pt2", dynamic=dynamic, check=False)
    inputs = {"input_ids": words(10, 9), "attention_mask": (torch.rand(10, 9) > 0.3).long()}
    inputs, target = {name: inputs[name] for name in names}, words(10, 9)
    found = trained(onebatch, tmp_path, inputs, target)
    if hasattr(model, "config"):
        assert model.config.use_cache is True, "the model is as it was"
        model.config = type("Config", (), {"use_cache": False})
    assert error_of(found, eagerly(model, inputs.values(), target, mean_loss)) <= 1e-14


@pytest.mark.filterwarnings("ignore:the model takes a length of 1 to 12 alone")
def test_a_loss_is_folded_in(onebatch, tmp_path):
    torch.manual_seed(3)
    model = Sentences()
    package.export(model, words(2, 5), tmp_path / "model.pt2", dynamic={"input_ids": {1: "length"}, "target": {1: "length"}}, loss=weighted_loss,
                   targets=words(2, 5), check=False)  # fmt: skip
    inputs, target = words(10, 9), words(10, 9)
    found = trained(onebatch, tmp_path, {"x": inputs}, target, '[loss]\nkind = "model"\n')
    assert error_of(found, eagerly(model, (inputs,), target, weighted_loss)) <= 1e-14


@pytest.fixture
def file(tmp_path):
    return tmp_path / "model.pt2"


def read(file):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.load(str(file))


class Plain(nn.Linear):
    def __init__(self):
        super().__init__(6, 3)


class Two(Plain):
    def forward(self, a, b, scale=2.0):
        return super().forward(a + b) * scale


def test_one_sample_and_one_word_are_no_fixed_sizes(file):
    package.export(Two(), (torch.randn(1, 1, 6), torch.randn(1, 1, 6)), file, dynamic={"a": {1: "length"}, "b": {1: "length"}}, check=False)
    assert read(file).module()(torch.randn(5, 4, 6), torch.randn(5, 4, 6)).shape == (5, 4, 3)


def test_limits_of_a_size_are_found_and_said(file):
    with pytest.warns(UserWarning, match="takes a length of 1 to 12 alone"):
        package.export(Sentences(), words(3, 4), file, dynamic={"input_ids": {1: "length"}}, check=False)
    ranges = read(file).range_constraints.values()
    assert sorted((int(size.lower), int(size.upper)) for size in ranges) == [(1, 12), (1, 65536)]


def test_a_length_that_is_a_multiple_is_said(file):
    class Pairs(Plain):
        def forward(self, x):
            assert x.shape[1] % 2 == 0
            return F.linear(x, self.weight)

    with pytest.warns(UserWarning, match=r"a length of 2\*_length alone"):
        package.export(Pairs(), torch.randn(3, 4, 6), file, dynamic={"x": {1: "length"}}, check=False)
    assert read(file).module()(torch.randn(5, 8, 6)).shape == (5, 8, 3)


def test_the_model_is_as_it_was(file):
    model = nn.Sequential(Plain(), nn.BatchNorm1d(3), nn.Dropout()).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    package.export(model, torch.randn(4, 6), file, check=False)
    assert not any(part.training for part in model.modules())
    assert "forward" not in vars(model)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not any("False" in str(node.args[5:6]) for node in read(file).graph.nodes if "batch_norm" in str(node.target))


def test_a_part_in_evaluation_mode_is_said(file):
    model = nn.Sequential(Plain(), nn.BatchNorm1d(3))
    model[1].eval()
    with pytest.warns(UserWarning, match="1 is in eval.. mode: .*batch_norm.frozen = true"):
        package.export(model, torch.randn(4, 6), file, check=False)


@pytest.mark.parametrize("around", [torch.compile, nn.DataParallel], ids=["torch.compile", "DataParallel"])
def test_parameters_keep_their_names_under_a_wrapper(around, file):
    package.export(around(Plain()), torch.randn(4, 6), file, check=False)
    assert set(read(file).state_dict) == {"weight", "bias"}


def test_an_input_may_have_the_targets_name(file):
    class Named(Plain):
        def forward(self, target):
            return super().forward(target)

    package.export(Named(), torch.randn(4, 6), file, loss=lambda output, y: (F.mse_loss(output, y, reduction="sum"), torch.ones_like(y).sum()),
                   targets=(torch.randn(4, 3),), check=False)  # fmt: skip
    assert [int(scalar.dim()) for scalar in read(file).module()(torch.randn(5, 6), torch.randn(5, 3))] == [0, 0]


def forward(code):
    """A model whose forward is this."""
    return type("Model", (Plain,), {"forward": code})()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2


@torch.library.custom_op("own::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


def decides(self, x):
    return F.linear(x, self.weight) if x.sum() > 0 else x


def loops(self, x):
    return torch.stack([F.linear(x[i], self.weight) for i in range(x.shape[0])])


def even(self, x):
    assert x.shape[0] % 2 == 0
    return F.linear(x, self.weight)


X, LABELS = torch.randn(4, 6), torch.zeros(4, dtype=torch.long)
REFUSED = {
    "a fixed batch": (forward(lambda self, x: F.linear(x.view(4, 6), self.weight)), X, {}, "write x.shape[0] … -1 in view()"),
    "a loop over samples": (forward(loops), X, {}, "instead of a loop over samples"),
    "a recurrent layer of any length": (nn.GRU(6, 3, batch_first=True), torch.randn(4, 5, 6), {"dynamic": {"input": {1: "n"}}}, "for one length: leave that size out"),
    "some batches": (forward(even), X, {}, "takes some of the sizes alone … % 2) == 0"),
    "what depends on values": (forward(decides), X, {}, "decides by the numbers in a tensor … write torch.where() … exporting_test.py … if x.sum() > 0"),
    "cond": (forward(lambda self, x: torch.cond(x.sum() > 0, lambda y: y * 1, lambda y: y * 2, (F.linear(x, self.weight),))), X, {}, "write torch.where() for torch.cond"),
    "numpy": (forward(lambda self, x: F.linear(torch.from_numpy(x.numpy()), self.weight)), X, {}, "NumPy array: write what it computes there with tensors"),
    "an operator of a library": (forward(lambda self, x: doubled(F.linear(x, self.weight))), X, {}, "own.doubled … an operator of a library … attn_implementation"),
    "an output of text": (forward(lambda self, x: [F.linear(x, self.weight), object()]), X, {}, "an output is no tensor"),
    "whole numbers alone": (forward(lambda self, x: F.linear(x, self.weight).argmax(1)), X, {}, "no tensor of floating point numbers"),
    "a shape that does not fit": (Plain(), torch.randn(4, 5), {}, "does not take inputs of these shapes"),
    "too few inputs": (Two(), X, {}, "a tensor for each of its arguments that has no default"),
    "too many inputs": (Plain(), (X, X), {}, "other arguments than were given"),
    "another name": (Two(), {"a": X, "c": X}, {}, "no argument of that name"),
    "no tensor": (Two(), (X, 3), {}, "the input b is int: give tensors alone"),
    "a number": (Plain(), torch.tensor(3.0), {}, "give a tensor of [samples, ...]"),
    "no inputs": (Plain(), (), {}, "example_inputs is empty"),
    "text for inputs": (Plain(), "x", {}, "give a tuple of tensors, or a dictionary"),
    "unlike numbers of samples": (Two(), (X, X[:3]), {}, "a 4, b 3"),
    "dynamic without an input": (Plain(), X, {"dynamic": {"x": {1: "n"}}}, "the input 'x', which there is not: they are 'input'"),
    "dynamic samples": (Plain(), X, {"dynamic": {"input": {0: "n"}}}, "no dimension 0 beside that of samples: it is [4, 6]"),
    "dynamic without a place": (Plain(), X, {"dynamic": {"input": "n"}}, "as in {'input': {1: \"length\"}}"),
    "dynamic without a name": (Plain(), X, {"dynamic": {"input": {1: 3}}}, "3 is no name"),
    "sizes that the model takes to be equal": (Two(), (X, X), {"dynamic": {"a": {1: "n"}}}, "as a fixed number"),
    "no loss": (Plain(), X, {"targets": LABELS}, "loss and targets come together"),
    "a mean": (Plain(), X, {"targets": LABELS, "loss": nn.CrossEntropyLoss()}, "the loss returns []: return two scalars, the *sum*"),
    "a loss per sample": (Plain(), X, {"targets": LABELS, "loss": lambda x, y: (F.cross_entropy(x, y, reduction="none"), y)}, "the loss returns [any], [any]"),
    "three targets": (Plain(), X, {"targets": (LABELS,) * 3, "loss": nn.CrossEntropyLoss()}, "targets are 3"),
    "TorchScript": (torch.jit.script(Plain()), X, {}, 'model.kind = "torchscript"'),
    "no model": (F.relu, X, {}, "give an nn.Module"),
    "nothing to train": (nn.ReLU(), X, {}, "no parameters"),
    "everything frozen": (Plain().requires_grad_(False), X, {}, "requires_grad_()"),
    "a lazy layer": (nn.LazyLinear(3), X, {}, "run the model once on a sample"),
    "a Hugging Face model with labels alone": (forward(lambda self, x: ModelOutput(loss=F.linear(x, self.weight).sum())), X, {}, "without a tensor but its loss"),
}


@pytest.mark.parametrize("model, inputs, more, words", REFUSED.values(), ids=REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_exported_is_said_in_plain_words(model, inputs, more, words, file, capfd):
    with pytest.raises(package.ExportError) as error:
        package.export(model, inputs, file, check=False, **more)
    assert [word for word in words.split(" … ") if word not in str(error.value)] == [], error.value
    assert "def forward" not in capfd.readouterr().err, "what torch.export prints is kept away"
    assert list(file.parent.iterdir()) == []
    assert isinstance(model, torch.jit.ScriptModule) or "forward" not in getattr(model, "__dict__", {})


MODULE = """
from __future__ import annotations
import dataclasses
import torch

@dataclasses.dataclass
class Config:
    width: int = 3

class Model(torch.nn.Linear):
    pass

def build():
    return Model(6, 3), (torch.randn(4, 6),)

def longer():
    return Model(6, Config().width), {"input": torch.randn(4, 5, 6)}, {"input": {1: "length"}}

def wrong():
    return Model(6, 3)
"""


def test_the_command_exports_what_a_file_builds(tmp_path):
    (tmp_path / "my_module.py").write_text(MODULE)
    done = subprocess.run([sys.executable, "-m", "onebatch", "export", "my_module.py:longer", "--out", "model.pt2"], cwd=tmp_path, capture_output=True, text=True,
                          env={**LOADER, "PYTHONPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert 'model.path = "model.pt2"' in done.stdout
    assert done.stderr == "onebatch: the exported file was not checked against the model: onebatch is not in PATH (name it by the variable ONEBATCH)\n"
    assert read(tmp_path / "model.pt2").module()(torch.randn(2, 3, 6)).shape == (2, 3, 3)


def test_images_have_the_shape_that_a_configuration_says():
    of = types.SimpleNamespace
    assert image_shape(of(image_size=32, num_channels=1)) == [1, 32, 32]
    assert image_shape(of(image_size=(48, 64), num_channels=3)) == [3, 48, 64]
    assert image_shape(of(vision_config=of(image_size=336, num_channels=3))) == [3, 336, 336]
    assert image_shape(of(num_channels=3)) == [3, 224, 224], "ResNet takes any"


WRONG = {"my_module.py:none": "has no function none()", "my_module.py:wrong": "return model, example_inputs", "nowhere.py:build": "nowhere.py is no file",
         "resnet50": "write torchvision:NAME", "timm:resnet50": "pip install timm"}  # fmt: skip


@pytest.mark.parametrize("source", WRONG)
def test_the_command_says_what_is_wrong(source, tmp_path, monkeypatch, capsys):
    (tmp_path / "my_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["onebatch", "export", source, "--out", "model.pt2"])
    monkeypatch.setitem(sys.modules, "timm", None)  # not installed
    assert commands.main() == 2
    assert WRONG[source] in capsys.readouterr().err
    assert not (tmp_path / "model.pt2").exists()


IGNORED = (("my_module.py:build", "--pretrained"), ("my_module.py:build", "--classes 5"), ("my_module.py:build", "--shape 3,64,64"), ("my_module.py:build", "--task causal-lm"),
           ("timm:resnet50", "--task causal-lm"), ("torchvision:resnet50", "--task masked-lm"), ("transformers:gpt2", "--shape 3,64,64"),
           ("transformers:gpt2", "--classes 5 --task causal-lm"))  # fmt: skip


@pytest.mark.parametrize("source, options", IGNORED)
def test_an_option_that_would_change_nothing_is_refused(source, options, tmp_path, monkeypatch, capsys):
    (tmp_path / "my_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["onebatch", "export", source, "--out", "model.pt2", *options.split()])
    assert commands.main() == 2
    said = capsys.readouterr().err
    assert f"{options.split()[0]} is of models of " in said and f"changes nothing of {source}" in said
    assert not (tmp_path / "model.pt2").exists()


# What stands in the file; the line of theirs that is shown; the last line but one.
BROKEN = {"in the function": ("def build():\n    raise ValueError('oops')", "line 2, in build", "ValueError: oops"),
          "in the file": ("open('nowhere.txt')", "line 1, in <module>", "FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.txt'"),
          "below the function": ("def part():\n    return {}['a']\ndef build():\n    return part()", "line 2, in part", "KeyError: 'a'"),
          "before Python": ("def build():\n    return (", "line 2", "SyntaxError: '(' was never closed"),
          "an argument": ("def build(classes):\n    pass", "", "TypeError: build() missing 1 required positional argument: 'classes'")}  # fmt: skip


@pytest.mark.parametrize("text, line, said", BROKEN.values(), ids=BROKEN)
def test_where_the_code_of_ones_own_fails_the_command_shows_where(text, line, said, tmp_path, monkeypatch, capsys):
    (tmp_path / "my_module.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["onebatch", "export", "my_module.py:build", "--out", "model.pt2"])
    assert commands.main() == 2
    shown = capsys.readouterr().err
    name = said.partition(":")[0]
    assert shown.splitlines()[-2:] == [said, f"onebatch: that {name} is from my_module.py, and nothing is exported: mend it there"]
    assert line in shown
    assert "sources.py" not in shown and "importlib" not in shown
