"""compile --recompute: a graph whose backward computes activations again gives what the plain one gives; the compiler does not take the copies for their originals."""
import copy
import hashlib
import json
import warnings
import zipfile

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import onebatch as package  # noqa: E402
from onebatch.activations import Joint  # noqa: E402
from onebatch.compiling import TYPES, compile_program, whole_loss  # noqa: E402
from onebatch.graphs import joint  # noqa: E402
from onebatch.recomputing import recompute  # noqa: E402
from onebatch.refusals import ExportError  # noqa: E402


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x):
        return x + self.b(F.dropout(F.relu(self.norm(self.a(x))), 0.2, self.training))


class Net(nn.Module):
    """Residuals, dropout, and statistics that the forward changes."""

    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *(Block() for _ in range(4))), nn.Linear(4, 5)

    def forward(self, x):
        return self.head(torch.tanh(self.blocks(x)).mean((2, 3)))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    torch.manual_seed(5)
    file = tmp_path_factory.mktemp("recomputing") / "model.pt2"
    package.export(Net(), torch.randn(3, 3, 12, 12), file, check=False)
    return file


@pytest.fixture(scope="module")
def programs(file):
    """The plain one, and the one that computes activations again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, *_ = joint(file, TYPES["float64"], whole_loss({"kind": "cross_entropy"}), torch.device("cpu"))
        lean = copy.deepcopy(plain)
    recompute(lean)
    return plain, lean


FACTOR = torch.tensor(0.5, dtype=torch.float64)


def given(program, samples, of_step, *inputs):
    """In the order of the graph's inputs."""
    held, specs = program.state_dict | program.constants, program.graph_signature.input_specs
    sums = [held[spec.target].detach() for spec in specs if spec.kind.name == "PARAMETER"]  # of as many numbers
    user = iter((samples, of_step, FACTOR, *sums, *inputs))
    return [next(user) if spec.kind.name == "USER_INPUT" else held[spec.target].detach() for spec in specs]


def calls(program, target):
    return [node for node in program.graph.nodes if node.target is target]


def outputs(program):
    return [(spec.kind, spec.arg.name, spec.target) for spec in program.graph_signature.output_specs]


def test_the_same_outputs_in_the_same_order(programs):
    plain, lean = programs
    assert outputs(lean) == outputs(plain)
    written = [spec.target for spec in lean.graph_signature.output_specs if spec.kind.name == "BUFFER_MUTATION"]
    assert len(set(written)) == len(written) == 3 * 4
    plain, lean = (len(calls(program, torch.ops.aten.convolution.default)) for program in programs)
    assert plain == 9 and lean >= 13


def test_the_same_numbers(programs):
    torch.manual_seed(6)
    inputs = torch.arange(40, 47), torch.tensor(1234567), torch.randn(7, 3, 12, 12, dtype=torch.float64), torch.randint(0, 5, (7,))
    plain, lean = (program.graph_module(*given(program, *inputs)) for program in programs)
    for name, expected, found in zip(outputs(programs[0]), plain, lean, strict=True):
        expected, found = expected.double(), found.double()
        assert expected.norm() > 0 and (found - expected).norm() <= 1e-14 * expected.norm(), name


def products(plain, lean):
    """Of a value and a token: those multiplications that are neither in the plain graph nor copies."""
    own = {node.name for node in plain.graph.nodes}
    return [node for node in calls(lean, torch.ops.aten.mul.Tensor) if node.name not in own and not node.name.endswith("_again")]


@pytest.mark.parametrize("pixel", [1.0, float("inf"), float("nan")])
def test_every_token_is_1(programs, pixel):
    """Of a loss and gradients that are no numbers, too."""
    inputs = torch.arange(40, 47), torch.tensor(1234567), torch.full((7, 3, 12, 12), pixel, dtype=torch.float64), torch.zeros(7, dtype=torch.int64)
    runs, tied = torch.fx.Interpreter(programs[1].graph_module, garbage_collect_values=False), products(*programs)
    made = runs.run(*given(programs[1], *inputs))
    loss = next(one for (kind, _, _), one in zip(outputs(programs[1]), made) if kind.name == "LOSS_OUTPUT")
    assert tied and loss.isfinite() == (pixel == 1.0)
    assert all(runs.env[node.args[1]] == 1 for node in tied)


def test_where_the_gradient_begins_has_to_be_found(programs):
    broken = copy.deepcopy(programs[0])
    root = next(node for node in calls(broken, torch.ops.aten.full.default) if node.args == ([], 1))
    root.args = ([], 2)
    with pytest.raises(ExportError, match="where the gradient begins is not found"):
        recompute(broken)


def test_the_gradient_begins_where_it_reaches_a_parameter(programs):
    """Not at another 1 behind the loss, nor is the last parameter asked alone."""
    plain = copy.deepcopy(programs[0])
    root = next(node for node in calls(plain, torch.ops.aten.full.default) if node.args == ([], 1))
    with plain.graph.inserting_before(root):
        plain.graph.node_copy(root)
        zero = plain.graph.call_function(torch.ops.aten.full.default, ([5], 0))
    spec = [spec for spec in plain.graph_signature.output_specs if spec.kind.name == "GRADIENT_TO_PARAMETER"][-1]
    spec.arg = type(spec.arg)(name=zero.name)
    assert Joint(plain).root is root


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mix, self.out = nn.LayerNorm(12), nn.Linear(12, 3 * 96), nn.Linear(96, 12)

    def forward(self, x):
        query, key, value = self.mix(self.norm(x)).unflatten(2, (3, 3, 32)).permute(2, 0, 3, 1, 4)
        return x + self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


def test_every_copy_has_a_token_with_attention(tmp_path):
    package.export(nn.Sequential(Layer(), Layer()), torch.randn(3, 6, 12), tmp_path / "model.pt2", check=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, *_ = joint(tmp_path / "model.pt2", TYPES["float32"], whole_loss({"kind": "mse"}), torch.device("cpu"))
    lean = copy.deepcopy(plain)
    recompute(lean)
    tied, copies = set(products(plain, lean)), [node for node in lean.graph.nodes if node.name.endswith("_again")]
    for node in copies:
        assert not tied.isdisjoint(node.all_input_nodes), node.name
        tied.add(node)
    assert len(copies) > 9
    assert len(calls(lean, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default)) > 2


def convolutions(package):
    """Calls in the code."""
    with zipfile.ZipFile(package) as archive:
        code = next(name for name in archive.namelist() if name.endswith(".wrapper.cpp"))
        return archive.read(code).decode().count("_convolution(")


def test_the_compiler_keeps_the_copies(file, programs):
    folder = compile_program(file, precision="float64", loss={"kind": "cross_entropy"}, recompute=True, evaluation=False)
    document = json.loads((folder / "compiled.json").read_text())
    assert document["lean"] == {"bytes": (folder / "lean.pt2").stat().st_size, "sha1": hashlib.sha1((folder / "lean.pt2").read_bytes()).hexdigest()}
    expected = [len(calls(program, torch.ops.aten.convolution.default)) for program in programs]
    assert [convolutions(folder / name) for name in ("training.pt2", "lean.pt2")] == expected
