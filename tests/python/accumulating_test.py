"""compile: gradients are added to sums inside of the graph, each times the factor, and nothing as large as all of them is made."""
import copy
import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import onebatch as package  # noqa: E402
from onebatch.accumulating import accumulate, overwritten  # noqa: E402
from onebatch.compiling import CROSS_ENTROPY, TYPES  # noqa: E402
from onebatch.graphs import joint  # noqa: E402

WORDS = 29


class Tied(nn.Module):
    """Words that are also the head, other words, a matrix that is read twice, and parameters of other operators."""

    def __init__(self):
        super().__init__()
        self.words, self.kinds, self.mix, self.conv, self.norm = nn.Embedding(WORDS, 8), nn.Embedding(17, 8), nn.Linear(8, 8), nn.Conv1d(8, 8, 3, padding=1), nn.LayerNorm(8)

    def forward(self, x):
        h = self.norm(self.mix(torch.tanh(self.mix(self.words(x) + self.kinds(x % 17)))))
        return F.linear(self.conv(h.transpose(1, 2)).transpose(1, 2), self.words.weight)


class Shared(nn.Module):
    """Two parameters whose gradients are one, but turned."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Parameter(torch.randn(5, 6)), nn.Parameter(torch.randn(6, 5))

    def forward(self, x):
        return F.linear(x, self.one + self.other.t())


def of(model, inputs, file, types):
    package.export(model, inputs, file, check=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, sums, _ = joint(file, types, CROSS_ENTROPY, torch.device("cpu"))
    return plain, accumulate(copy.deepcopy(plain), sums), sums


def test_a_product_that_two_sums_get_is_made_once(tmp_path):
    _, adding, _ = of(Shared(), torch.randn(3, 6), tmp_path / "model.pt2", TYPES["float32"])
    targets = [node.target for node in adding.graph.nodes]
    assert torch.ops.onebatch.add_product.default not in targets and targets.count(torch.ops.aten.mm.default) == 2  # the forward has one


@pytest.fixture(scope="module", params=["float32", "float64", "bfloat16", "float16"])
def graphs(request, tmp_path_factory):
    """That which returns gradients, that which adds them, and the names of the sums."""
    torch.manual_seed(5)
    return of(Tied(), torch.randint(0, WORDS, (3, 5)), tmp_path_factory.mktemp("accumulating") / "model.pt2", TYPES[request.param])


def test_sums_have_the_gradients_of_the_graph_that_returns_them(graphs):
    plain, adding, sums = graphs
    wide = next(iter(plain.state_dict.values())).dtype
    torch.manual_seed(6)
    given = torch.arange(40, 47), torch.tensor(1234567), torch.tensor(0.25, dtype=wide)
    before = [torch.randn_like(plain.state_dict[name]) for name in sums]
    inputs = torch.randint(0, WORDS, (7, 5)), torch.randint(0, WORDS, (7, 5))
    user, specs = iter((*given, *before, *inputs)), plain.graph_signature.input_specs
    loss, summed, *gradients = plain.graph_module(*(plain.state_dict[spec.target].detach() if spec.kind.name == "PARAMETER" else next(user) for spec in specs))
    names = [spec.target for spec in plain.graph_signature.output_specs if spec.kind.name == "GRADIENT_TO_PARAMETER"]
    after = [tensor.clone() for tensor in before]
    again = adding.module(check_guards=False)(*given, after, *inputs)
    assert len(again) == 2 and torch.equal(again[0], loss) and torch.equal(again[1], summed) and torch.equal(0.25 * summed, loss)
    most = 1e-14 if wide is torch.float64 else 1e-6
    for name, old, new in zip(sums, before, after, strict=True):
        expected = old + gradients[names.index(name)]
        assert gradients[names.index(name)].norm() > 0 and (new - expected).norm() <= most * expected.norm(), name


def test_products_and_rows_go_into_the_sums(graphs, request):
    _, adding, sums = graphs
    places = {name: next(node for node in adding.graph.nodes if node.name == place) for name, place in sums.items()}
    assert {spec.kind.name for spec in adding.graph_signature.output_specs} == {"USER_INPUT_MUTATION", "LOSS_OUTPUT", "USER_OUTPUT"}

    def targets(name):
        node, found = places["program." + name], []
        while True:
            readers = [one for one in node.users if one.op == "call_function"]
            found += [str(one.target).split(".")[1] for one in readers]
            values = [one for one in readers if one.target not in (torch.ops.onebatch.add_product.default, torch.ops.onebatch.add_rows.default)]
            if not values:
                return sorted(found)
            (node,) = values

    product = "add" if request.node.callspec.params["graphs"].endswith("16") else "add_product"  # of another type than the sum
    assert targets("mix.weight") == [product, product]
    assert targets("kinds.weight") == ["add_rows"]
    assert targets("words.weight") == sorted([product, "add_rows"])
    assert targets("norm.weight") == targets("conv.weight") == ["add"]


class Few(nn.Module):
    """A matrix of one product, one of two, one of a product whose squares are in the loss, and one of no product alone; biases."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.penalised, self.conv = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6), nn.Conv1d(1, 1, 3, padding=1)

    def forward(self, x):
        h = self.penalised(self.two(torch.tanh(self.two(torch.tanh(self.one(x))))))
        return self.conv(h[:, None])[:, 0] + self.penalised.weight.square().sum()


def test_one_product_alone_may_be_written_over_what_is_there(tmp_path):
    _, adding, sums = of(Few(), torch.randn(3, 6), tmp_path / "model.pt2", TYPES["float64"])
    places = overwritten(adding, sums)
    assert [list(sums)[place] for place in places] == ["program.one.weight"]
