"""The check of an exported file against its model: what it finds, by results that are forged, and by the program where it has the command."""
import subprocess
import types
import warnings

import pytest

torch = pytest.importorskip("torch")
load_file = pytest.importorskip("safetensors.torch").load_file
save_file = pytest.importorskip("safetensors.torch").save_file
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import onebatch as package  # noqa: E402
from onebatch import checking  # noqa: E402


class Net(nn.Module):
    """With a type in its code, and a running statistic."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.fc, self.norm, self.dropout = nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(self.norm(self.fc(x)).float() * torch.full((4,), 1.5, dtype=torch.float32))


class Program:
    """In the place of `onebatch check`: computes what it is to compute, from the model itself, and then does it some harm."""

    def __init__(self, model, harm=lambda result: None, code=0):
        self.model, self.harm, self.code, self.calls = model.double(), harm, code, []
        self.before = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def run(self, command, **_options):
        file, given, phase, result = command[2], command[4], command[6], command[8]
        assert (command[1], command[3], command[5], command[7]) == ("check", "--inputs", "--phase", "--save")
        assert torch.export.load(file) is not None
        inputs = load_file(given)
        self.calls.append((phase, {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in inputs.items()}))
        save_file(self.results(inputs, phase), result)
        return types.SimpleNamespace(returncode=self.code, stdout="", stderr="onebatch: model.pt2: an operator that is not known")

    def results(self, inputs, phase):
        model = self.model.train(phase == "training")
        model.load_state_dict(self.before)
        model.zero_grad()
        normal = model.norm(model.fc(inputs["000"])) * 1.5
        (normal**2).sum().backward()
        found = {"output.0": normal.detach(), **{f"gradient.{name}": tensor.grad for name, tensor in model.named_parameters()},
                 **{f"buffer.{name}": tensor.double().clone() for name, tensor in model.named_buffers()}}
        self.harm(found)
        return found


def exported(tmp_path, monkeypatch, model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = Program(Net(), **options)
        program.model.load_state_dict(model.state_dict())
        program.before = {name: tensor.clone() for name, tensor in program.model.state_dict().items()}
        monkeypatch.setenv("ONEBATCH", "onebatch")
        monkeypatch.setattr(checking, "subprocess", program)
        package.export(model, torch.randn(4, 6), tmp_path / "model.pt2")
    return program


def test_two_batch_sizes_are_compared_in_both_phases(tmp_path, monkeypatch):
    program = exported(tmp_path, monkeypatch, Net())
    assert program.calls == [(phase, {"000": (torch.float64, (batch, 6))}) for batch in (3, 5) for phase in ("evaluation", "training")]
    assert (tmp_path / "model.pt2").is_file()


def test_what_draws_is_compared_in_evaluation_alone(tmp_path, monkeypatch):
    assert [phase for phase, _ in exported(tmp_path, monkeypatch, Net(dropout=0.5)).calls] == ["evaluation"] * 2


def forward(code):
    """A model whose forward is this."""
    return type("Model", (Net,), {"forward": code})()


def double(name):
    return lambda result: result[name].mul_(1 + 1e-6)


HARM = {
    "an output that is off": (double("output.0"), "in evaluation, for 3 samples, output.0 is 1"),
    "a gradient that is off": (double("gradient.norm.weight"), "gradient.norm.weight is"),
    "a buffer that is off": (lambda result: result["buffer.norm.running_var"].add_(1e-6), "buffer.norm.running_var is"),
    "a gradient that is missing": (lambda result: result.pop("gradient.fc.weight"), "gradient.fc.weight is"),
    "no number": (lambda result: result["gradient.fc.weight"][0].fill_(float("nan")), "gradient.fc.weight is inf off"),
    "another shape": (lambda result: result.update({"output.0": torch.zeros(2, 2, dtype=torch.float64)}), "output.0 is inf off"),
}


@pytest.mark.parametrize("harm, words", HARM.values(), ids=HARM)
def test_a_difference_is_named_and_no_file_is_left(harm, words, tmp_path, monkeypatch):
    with pytest.raises(package.CheckFailed) as error:
        exported(tmp_path, monkeypatch, Net(), harm=harm)
    assert words in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_what_the_program_says_is_passed_on(tmp_path, monkeypatch):
    with pytest.raises(package.CheckFailed, match="an operator that is not known"):
        exported(tmp_path, monkeypatch, Net(), code=2)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_gives_no_numbers_is_not_the_files_fault(tmp_path, monkeypatch):
    model = Net()
    with torch.no_grad():
        model.fc.bias[0] = float("inf")
    with pytest.raises(package.CheckFailed, match="the model itself gives no finite numbers"):
        exported(tmp_path, monkeypatch, model)


def test_a_length_that_is_a_multiple_is_checked_as_it_is(checked, tmp_path):
    class Pairs(nn.Linear):
        def forward(self, x):
            assert x.shape[1] % 2 == 0
            return super().forward(x)

    with pytest.warns(UserWarning, match="alone"):
        package.export(Pairs(6, 4), torch.randn(4, 4, 6), tmp_path / "model.pt2", dynamic={"x": {1: "length"}})


def test_a_model_that_does_not_take_other_lengths_is_not_the_files_fault(tmp_path, monkeypatch):
    class Even(nn.Linear):
        def forward(self, x):
            if not torch.compiler.is_exporting() and x.shape[1] % 2:
                raise ValueError("an odd length")
            return super().forward(x)

    monkeypatch.setenv("ONEBATCH", "onebatch")
    with pytest.raises(package.CheckFailed, match=r"the model itself fails in evaluation, .* \[3, 5, 6\], .*ValueError: an odd length"):
        package.export(Even(6, 4), torch.randn(4, 4, 6), tmp_path / "model.pt2", dynamic={"x": {1: "length"}})


@pytest.mark.parametrize("layer, drawn", [(nn.LSTM(6, 4, 2), False), (nn.LSTM(6, 4, 2, dropout=0.1), True), (nn.Dropout(0.0), False), (nn.Dropout(0.1), True),
                                          (nn.RReLU(), True), (nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0), False),
                                          (nn.TransformerEncoderLayer(6, 2, 8, dropout=0.1), True)], ids=str)  # fmt: skip
def test_layers_that_draw_are_known(layer, drawn):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(layer.train(), (torch.randn(3, 5, 6),))
    assert bool(checking.draws(program)) == drawn


AROUND = {"autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16), "no_grad": torch.no_grad}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_what_draws_within_a_part_is_known(around):
    class Within(Net):
        def forward(self, x):
            with around():
                hidden = self.dropout(self.fc(x))
            return self.norm(hidden.float() + self.fc(x))

    program = torch.export.export(Within(dropout=0.1), (torch.randn(3, 6),), strict=False)
    assert [str(node.target) for node in checking.draws(program)] == ["aten.dropout.default"]


DRAWN = {"uniform_": lambda x: torch.empty_like(x).uniform_(), "normal_": lambda x: torch.empty_like(x).normal_(), "normal": lambda x: torch.normal(x, 1.0),
         "rand": lambda x: torch.rand(3, 6), "gumbel_softmax": F.gumbel_softmax}  # fmt: skip


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_calls_that_draw_in_any_phase_are_known(draw):
    program = torch.export.export(forward(lambda self, x: self.fc(x + draw(x))), (torch.randn(3, 6),), strict=False)
    assert [checking.follows_phase(node) for node in checking.draws(program)] == [False]


def test_without_a_program_it_is_said_that_nothing_was_checked(tmp_path, monkeypatch):
    monkeypatch.delenv("ONEBATCH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.warns(UserWarning, match="was not checked against the model"):
        package.export(nn.Linear(6, 4), torch.randn(4, 6), tmp_path / "model.pt2")
    assert (tmp_path / "model.pt2").is_file()


class Words(nn.Module):
    """A length that varies up to 9, two inputs, two outputs."""

    def __init__(self):
        super().__init__()
        self.words, self.positions, self.head = nn.Embedding(7, 6), nn.Parameter(torch.randn(9, 6)), nn.Linear(6, 7)
        self.layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)

    def forward(self, words, shift):
        hidden = self.layer(self.words(words) + self.positions[:words.shape[1]])
        return self.head(hidden) + shift.unsqueeze(2), hidden.mean(1)


class Auxiliary(nn.Module):
    """A second head in training alone, as Inception's."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.auxiliary = nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(5, 4)

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        return (self.head(hidden), self.auxiliary(hidden)) if self.training else self.head(hidden)


def has_check(program):
    return "--phase" in subprocess.run([program, "check", "--help"], capture_output=True, text=True).stdout


def test_a_program_without_the_command_is_said_to_be_too_old(tmp_path, monkeypatch):
    old = tmp_path / "onebatch"
    old.write_text("#!/bin/sh\necho 'onebatch: no command \"check\"' >&2\nexit 2\n")
    old.chmod(0o755)
    monkeypatch.setenv("ONEBATCH", str(old))
    with pytest.warns(UserWarning, match="was not checked against the model: .*onebatch is of a version without the command check"):
        package.export(nn.Linear(6, 4), torch.randn(4, 6), tmp_path / "model.pt2")
    assert (tmp_path / "model.pt2").is_file()


@pytest.mark.parametrize("broken", [False, True], ids=["as it is", "another weight"])
@pytest.mark.filterwarnings("ignore")
def test_the_program_computes_what_the_model_does(onebatch, broken, tmp_path, monkeypatch):
    if not has_check(onebatch.path):
        pytest.skip("this program has no command check")
    monkeypatch.setenv("ONEBATCH", onebatch.path)
    torch.manual_seed(4)
    net, words = Net(), Words()
    if broken:
        load = nn.Module.load_state_dict
        monkeypatch.setattr(Net, "load_state_dict", lambda self, state: load(self, {**state, "fc.bias": state["fc.bias"] + 1e-6}))
        with pytest.raises(package.CheckFailed, match="off"):
            package.export(net, torch.randn(4, 6), tmp_path / "net.pt2")
        return
    package.export(net, torch.randn(4, 6), tmp_path / "net.pt2")
    package.export(Auxiliary(), torch.randn(4, 6), tmp_path / "auxiliary.pt2")
    package.export(words, (torch.randint(0, 7, (2, 4)), torch.randn(2, 4)), tmp_path / "words.pt2", dynamic={"words": {1: "length"}, "shift": {1: "length"}})


@pytest.fixture
def checked(onebatch, monkeypatch):
    """By the program itself, on one batch."""
    if not has_check(onebatch.path):
        pytest.skip("this program has no command check")
    monkeypatch.setenv("ONEBATCH", onebatch.path)
    monkeypatch.setattr(checking, "BATCHES", (3,))
    torch.manual_seed(6)


def test_what_draws_in_evaluation_is_run_and_said_not_to_be_compared(checked, tmp_path):
    model = forward(lambda self, x: self.norm(self.fc(x + torch.randn_like(x))))
    with pytest.warns(UserWarning, match=r"was not checked against the model: it draws random numbers of its own in evaluation, too \(aten.randn_like.default\)"):
        package.export(model, torch.randn(4, 6), tmp_path / "model.pt2")
    assert (tmp_path / "model.pt2").is_file()


DIFFERS = {
    "noise in training alone": (lambda self, x: self.fc(x + torch.randn_like(x) if self.training else x), "the file draws random numbers in validation, too"),
    "a dropout without a switch": (lambda self, x: self.fc(F.dropout(x, 0.5)), "write F.dropout(..., training=self.training)"),
}


@pytest.mark.parametrize("code, words", DIFFERS.values(), ids=DIFFERS)
def test_what_draws_in_one_phase_and_not_in_the_files_is_said(code, words, checked, tmp_path):
    with pytest.raises(package.CheckFailed) as error:
        package.export(forward(code), torch.randn(4, 6), tmp_path / "model.pt2")
    assert words in str(error.value)


def numbers(self, x):
    """That are in the file in float32, and that onebatch makes in the run's type."""
    scaled = x * torch.tensor(0.1) * torch.where(x > 0, 0.1, 0.7) + x.new_tensor([0.1] * 6) + torch.erf(torch.arange(6))
    return self.fc(scaled + torch.linspace(0, 1, 6) + torch.arange(6) / 7 + torch.exp(torch.arange(6) * -0.3) + torch.full((6,), 0.3))


def weighed(output, target):
    return F.cross_entropy(output, target, weight=torch.tensor([0.1, 0.2, 0.3, 0.7]), reduction="sum"), torch.tensor([0.1, 0.2, 0.3, 0.7])[target].sum()


def test_numbers_in_a_forward_and_a_loss_have_the_files_bits(checked, tmp_path):
    package.export(forward(numbers), torch.randn(4, 6), tmp_path / "forward.pt2")
    package.export(nn.Linear(6, 4), torch.randn(4, 6), tmp_path / "loss.pt2", loss=weighed, targets=torch.arange(4))


def test_another_number_is_found(checked, tmp_path):
    model = forward(lambda self, x: self.fc(x * torch.tensor(0.1 if torch.compiler.is_exporting() else 0.1 + 1e-6)))
    with pytest.raises(package.CheckFailed, match="off"):
        package.export(model, torch.randn(4, 6), tmp_path / "model.pt2")


def test_inputs_may_be_changed_in_place(checked, tmp_path):
    def changes(self, x):
        x -= 0.5
        return self.fc(x.mul_(2))

    package.export(forward(changes), torch.randn(4, 6), tmp_path / "model.pt2")


def test_a_model_that_cannot_be_copied_is_said_not_to_be_checked(tmp_path, monkeypatch):
    monkeypatch.setenv("ONEBATCH", "onebatch")
    with pytest.warns(UserWarning, match="was not checked against the model: copy.deepcopy.. does not take the model .RuntimeError: Only Tensors created"):
        package.export(nn.utils.weight_norm(nn.Linear(6, 4)), torch.randn(4, 6), tmp_path / "model.pt2")
    assert (tmp_path / "model.pt2").is_file()
