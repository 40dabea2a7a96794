"""compile: numbers of the data that are outside of a table end the run as the program's own operators end it, on all ranks, and not the process."""
import pathlib
import subprocess

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import onebatch as package  # noqa: E402
from compiled_cases import OWN_LOSS, Compiled, error_of, wait_until  # noqa: E402
from onebatch.compiling import CROSS_ENTROPY, TYPES  # noqa: E402
from onebatch.graphs import joint  # noqa: E402
from program import settings  # noqa: E402

WORDS, LENGTH, CLASSES, SAMPLES = 11, 5, 4, 23
INSIDE = torch.ops.onebatch.inside.default


class Tables(nn.Module):
    """A table of words, one of places, which no data choose from, and one that is looked up from its end on; the words' rows twice. The loss is in it."""

    def __init__(self):
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(WORDS, 8), nn.Embedding(LENGTH, 8), nn.Linear(8, CLASSES)
        self.last = nn.Parameter(torch.randn(WORDS, 8))

    def forward(self, x):
        h = self.words(x) + self.words(x).tanh() + self.places(torch.arange(LENGTH)) + self.last[-1 - x]
        return self.head(h.mean(1))


def loss(output, target):
    return F.cross_entropy(output, target, reduction="sum"), torch.ones_like(target, dtype=output.dtype).sum()


def words(rows):
    return torch.randint(0, WORDS, (rows, LENGTH))


def labels(rows):
    return torch.randint(0, CLASSES, (rows,))


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    more = {"loss": loss, "targets": (labels(3),)}
    return Compiled(tmp_path_factory.mktemp("case"), (Tables, lambda: words(3), more, lambda: (words(SAMPLES), labels(SAMPLES)), OWN_LOSS, []), evaluation=True)


def test_each_index_of_the_data_is_looked_at_once(case):
    graph, _, _ = joint(case.scratch.path / "model.pt2", TYPES["float64"], None, torch.device("cpu"))
    assert sorted(node.args[1:] for node in graph.graph.nodes if node.target is INSIDE) == [(-WORDS, WORDS), (0, CLASSES), (0, WORDS)]


class Marks(nn.Module):
    """Writes where the words are, and takes rows by them."""

    def __init__(self):
        super().__init__()
        self.head, self.rows = nn.Linear(WORDS + 1, CLASSES), nn.Parameter(torch.randn(WORDS + 2, CLASSES))

    def forward(self, x):
        marks = x.new_zeros(x.shape[0], WORDS + 1, dtype=self.rows.dtype).scatter(1, x, 1.0)
        return self.head(marks) + self.rows.index_select(0, x[:, 0])


def test_what_is_written_by_the_data_is_looked_at_too(tmp_path):
    package.export(Marks(), words(3), tmp_path / "model.pt2", check=False)
    graph, _, _ = joint(tmp_path / "model.pt2", TYPES["float64"], CROSS_ENTROPY, torch.device("cpu"))
    assert sorted(node.args[2] for node in graph.graph.nodes if node.target is INSIDE) == [CLASSES, WORDS + 1, WORDS + 2]


class Made(nn.Module):
    """Of bytes, of a column of floats, of sums of a mask, of a length; what moves numbers before they choose is moved after they were looked at."""

    def __init__(self):
        super().__init__()
        self.words, self.kinds, self.sums, self.places = nn.Embedding(2, 4), nn.Embedding(3, 4), nn.Embedding(9, 4), nn.Embedding(5, 4)
        self.cube = nn.Parameter(torch.randn(7, 6, 4))

    def forward(self, x, column):
        h = self.words(x.long()) + self.kinds(column.long())[:, None] + self.sums(x.ne(0).int().cumsum(1)) + self.places(torch.arange(x.shape[1]))
        h = h + self.cube[:, column.int()].mean(0)[:, None]
        return h.gather(2, x.long().unsqueeze(2).expand(-1, -1, CLASSES)).mean(1)


def test_whatever_it_is_made_of(tmp_path):
    examples = torch.ones(3, 2, dtype=torch.uint8), torch.ones(3)
    package.export(Made(), examples, tmp_path / "model.pt2", dynamic={"x": {1: "length"}}, check=False)
    graph, _, _ = joint(tmp_path / "model.pt2", TYPES["float64"], CROSS_ENTROPY, torch.device("cpu"))
    looked = sorted((*node.args[1:], node.args[0].meta["val"].dim()) for node in graph.graph.nodes if node.target is INSIDE)
    assert looked == [(-6, 6, 1), (0, 2, 2), (0, 3, 1), (0, CLASSES, 1), (0, CLASSES, 2), (0, 5, 1), (0, 9, 2)]


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_is_inside_trains(ranks, case, onebatch):
    assert error_of(case.train(onebatch, ranks, compiled=case.folder), case.train(onebatch)) <= 1e-12


BAD = {
    "a word": (WORDS, 0, f"rows 0 to {WORDS} are asked for, and there are 0 to {WORDS - 1}"),
    "a word below": (-1, 0, f"rows -1 to {WORDS - 1} are asked for, and there are 0 to {WORDS - 1}"),
    "a label": (0, CLASSES, f"rows 0 to {CLASSES} are asked for, and there are 0 to {CLASSES - 1}"),
}


@pytest.mark.parametrize("phase", ["training", "validation"])
@pytest.mark.parametrize("word, label, said", BAD.values(), ids=BAD)
def test_what_is_outside_is_named(word, label, said, phase, case, onebatch, tmp_path):
    """In the last sample, which nobody has looked at before; the code says it, on whichever rank it is."""
    x, y = words(SAMPLES), labels(SAMPLES)
    x[:, 0], x[:, 1], y[:2], x[-1, 2], y[-1] = 0, WORDS - 1, torch.tensor([0, CLASSES - 1]), word, label
    package.save_dataset(tmp_path / "bad.safetensors", x=x, y=y)
    pairs = ["batch.global_batch_size=23", "batch.micro_batch_size=23", "run.max_steps=1", "verify.at_start=false", f'data.{"validation." * (phase == "validation")}path="{tmp_path}/bad.safetensors"']
    found = case.train(onebatch, compiled=case.folder, code=1, more=pairs)
    assert f"index out of range in self: {said} (in the compiled program)" in found and "terminate called" not in found, found


def test_all_ranks_end_together(case, onebatch, tmp_path):
    x = words(SAMPLES)
    x[-1, 2] = WORDS
    package.save_dataset(tmp_path / "bad.safetensors", x=x, y=labels(SAMPLES))
    pairs = [f'data.path="{tmp_path}/bad.safetensors"', "batch.global_batch_size=23", "batch.micro_batch_size=5", "run.max_steps=1", "verify.at_start=false", f'model.compiled="{case.folder}"']
    found = onebatch.run(2, "train", case.scratch.config, *settings(*pairs), code=(1, 4), seconds=60)  # of whichever rank mpirun tells
    assert f"{BAD['a word'][2]} (in the compiled program)" in found and "terminate called" not in found and "Aborted" not in found


def test_code_that_is_killed_leaves_nothing_behind(case, onebatch):
    """LibTorch unpacks it into a folder of /tmp, which is gone once it is loaded."""
    pairs = ['run.name="killed"', f'model.compiled="{case.folder}"', "run.max_steps=100000000", "verify.at_start=false"]
    with onebatch.start(1, "train", case.scratch.config, *settings(*pairs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        metrics = case.scratch.runs / "killed/metrics.jsonl"
        wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0)
        mapped = pathlib.Path(f"/proc/{process.pid}/maps").read_text().splitlines()
        process.kill()
    code = {pathlib.Path(line.split(maxsplit=5)[5].removesuffix(" (deleted)")) for line in mapped if "/data/aotinductor/" in line}
    assert code and not any(one.exists() for one in code)
