"""Where native code tells of sums that are final: behind all that writes to them."""
import pytest

torch = pytest.importorskip("torch")
from torch import fx  # noqa: E402

from onebatch import announcing  # noqa: E402
from onebatch.accumulating import add_product  # noqa: E402, F401, which registers the operator
from onebatch.announcing import announce  # noqa: E402

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch):
    monkeypatch.setattr(announcing, "BYTES", 1)


class Graph:
    """As the compiler has it after its passes: sums that it writes to in place, or copies to at the end."""

    def __init__(self, number):
        self.graph = fx.Graph()
        self.value = torch.zeros(4, 4)
        self.sums = [self.input(f"sum_{place}") for place in range(number)]
        self.left, self.right = self.input("left"), self.input("right")

    def input(self, name):
        node = self.graph.placeholder(name)
        node.meta["val"] = self.value
        return node

    def call(self, target, *args):
        node = self.graph.call_function(target, args)
        node.meta["val"] = self.value
        return node

    def announced(self):
        """Each call by its name, those that tell by the places of the sums."""
        self.graph.output(())
        announce(self.graph, self.sums)
        self.graph.lint()
        called = [node for node in self.graph.nodes if node.op == "call_function"]
        return [tuple(node.args[1]) if node.target is torch.ops.onebatch.are_final.default else str(node.target).split(".")[1] for node in called]


def product(graph, to):
    return graph.call(torch.ops.onebatch.add_product.default, to, graph.left, graph.right)


def test_a_copy_goes_to_where_its_value_is_made():
    graph = Graph(2)
    values = [graph.call(aten.add.Tensor, one, graph.left) for one in graph.sums]
    product(graph, graph.left)
    for one, value in zip(graph.sums, values):
        graph.call(aten.copy_.default, one, value)
    assert graph.announced() == ["add", "copy_", (0,), "add", "copy_", (1,), "add_product"]


def test_a_value_that_is_written_to_once_more_is_copied_after_that():
    """A penalty on a weight that is also multiplied with."""
    graph = Graph(1)
    value = graph.call(aten.add.Tensor, graph.sums[0], graph.left)
    graph.call(aten.mul.Tensor, graph.left, graph.right)
    product(graph, value)
    graph.call(aten.mul.Tensor, graph.left, graph.right)
    graph.call(aten.copy_.default, graph.sums[0], value)
    assert graph.announced() == ["add", "mul", "add_product", "copy_", (0,), "mul"]


def test_a_value_of_which_a_part_is_written_anew_is_copied_after_that():
    graph = Graph(1)
    value = graph.call(aten.add.Tensor, graph.sums[0], graph.left)
    part = graph.call(aten.slice.Tensor, value, 0, 0, 2)
    graph.call(aten.copy_.default, part, graph.right)
    graph.call(aten.mul.Tensor, graph.left, graph.right)
    graph.call(aten.copy_.default, graph.sums[0], value)
    assert graph.announced() == ["add", "slice", "copy_", "copy_", (0,), "mul"]


def test_what_is_written_in_place_twice_is_final_after_the_second():
    """Places of two indices, and a product, of one weight; the copy is none."""
    graph = Graph(1)
    value = graph.call(aten.index_put_.default, graph.sums[0], [graph.left], graph.right, True)
    graph.call(aten.mul.Tensor, graph.left, graph.right)
    product(graph, value)
    graph.call(aten.mul.Tensor, graph.left, graph.right)
    graph.call(aten.copy_.default, graph.sums[0], value)
    assert graph.announced() == ["index_put_", "mul", "add_product", (0,), "mul", "copy_"]


def test_sums_are_told_of_together_until_there_are_enough(monkeypatch):
    monkeypatch.setattr(announcing, "BYTES", 2 * 64)
    graph = Graph(3)
    for one in reversed(graph.sums):
        product(graph, one)
    assert graph.announced() == ["add_product", "add_product", (2, 1), "add_product"]  # the last one by the end
