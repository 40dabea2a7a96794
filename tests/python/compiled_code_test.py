"""compile: of what the native code is made, which its speed hangs on."""
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import onebatch as package  # noqa: E402
from compiled_cases import AS_SMOOTHED, CONFIG, MLP, SEGMENTS, SMOOTHED, WORDS, Compiled, Exported, Mlp, error_of  # noqa: E402
from onebatch import announcing  # noqa: E402
from onebatch.compiler_setting import libtorchs_pooling, own_results  # noqa: E402
from onebatch.compiling import CROSS_ENTROPY, TYPES, VECTORS, compile_program, instructions  # noqa: E402
from onebatch.graphs import joint  # noqa: E402
from program import Scratch, read_json, read_json_lines, settings  # noqa: E402


class Attention(nn.Module):
    """Without dropout: LibTorch's own attention, of any length; PyTorch's layer of it, which views what comes out; a buffer that is not saved; nn.Bilinear; a table of two indices."""

    def __init__(self):
        super().__init__()
        self.words, self.places, self.qkv, self.head = nn.Embedding(WORDS, 8), nn.Embedding(16, 8), nn.Linear(8, 24), nn.Linear(8, WORDS)
        self.layer, self.mix = nn.MultiheadAttention(8, 2, batch_first=True), nn.Bilinear(8, 8, 8)
        self.pairs = nn.Parameter(torch.randn(4, 3, 8))
        self.register_buffer("order", torch.arange(16), persistent=False)

    def forward(self, x):
        h = self.words(x) + self.places(self.order[: x.shape[1]]) + self.pairs[x % 4, x % 3]
        q, k, v = (one.unflatten(2, (2, 4)).transpose(1, 2) for one in self.qkv(h).chunk(3, 2))
        h = h + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.head(self.mixed(h, self.layer(h, h, h, need_weights=False)[0]))

    def mixed(self, first, second):
        return self.mix(first, second)


class Added(Attention):
    """PyTorch's bilinear takes no autocast."""

    def mixed(self, first, second):
        return first + second


def tokens(rows, length):
    return torch.randint(0, WORDS, (rows, length))


def code_of(folder):
    with zipfile.ZipFile(folder / "training.pt2") as archive:
        return "".join(archive.read(name).decode() for name in archive.namelist() if name.endswith(".cpp"))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.second(F.relu(self.norm(self.first(x)))).mean((2, 3)))


OF_TOKENS = (lambda: tokens(3, 5), {"dynamic": {"x": {1: "length"}}}, lambda: (tokens(23, 9), tokens(23, 9)), SMOOTHED, AS_SMOOTHED)
CONVOLUTIONS = (Convolutions, lambda: torch.randn(3, 3, 8, 8), {}, lambda: (torch.randn(23, 3, 8, 8), torch.randint(0, 4, (23,))), SMOOTHED, AS_SMOOTHED)


class Depthwise(nn.Module):
    """Convolutions of each channel alone, of which one is the first, pooling of windows that overlap, and what views their images as they lay."""

    def __init__(self):
        super().__init__()
        self.own, self.first, self.spread, self.head = nn.Conv2d(3, 3, 3, padding=1, groups=3), nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 5, padding=2, groups=8), nn.Linear(64, 4)

    def forward(self, x):
        h = F.max_pool2d(F.relu(self.spread(torch.tanh(self.first(self.own(x))))), 3, 1, 1)
        return self.head(h.view(h.shape[0], 16, 64).mean(1))


DEPTHWISE = (Depthwise, lambda: torch.randn(3, 3, 8, 8), *CONVOLUTIONS[2:])


@pytest.mark.parametrize("precision, most", [("float32", 1e-6), ("float64", 1e-12)])
def test_backwards_that_are_libtorchs_own_are_quick_ones(precision, most, onebatch, tmp_path):
    """A depthwise convolution's with channels last, max pooling's."""
    case = Compiled(tmp_path, DEPTHWISE, precision)
    assert error_of(case.train(onebatch, compiled=case.folder), case.train(onebatch)) <= most
    graph, _, _ = joint(tmp_path / "model.pt2", TYPES[precision], CROSS_ENTROPY, torch.device("cpu"))
    backward = torch.ops.aten.convolution_backward.default
    lie_last = {node.args[9]: all(given.meta["val"].stride(1) == 1 for given in node.args[:2]) for node in graph.graph.nodes if node.target is backward}
    assert lie_last == {3: True, 1: False, 8: True}
    assert "aoti_torch_cpu_max_pool2d_with_indices_backward" in code_of(case.folder)


def test_the_place_of_a_maximum_is_libtorchs():
    """Also in windows of nothing but -inf and padding, where the compiler's own lies outside of the image."""
    x = torch.randn(3, 2, 9, 11)
    x[:, :, :2] = x[..., :2] = -torch.inf

    def places(x):
        return F.max_pool2d(x, 3, 2, 1, return_indices=True)[1]

    with own_results(), libtorchs_pooling(torch.device("cpu")):
        found = torch.compile(places)(x)
    assert torch.equal(found, places(x)) and found.min() == 0


class Unusual(nn.Module):
    """Dropout in a region without gradients, whose parameters get none; paths that are dropped, of which none is at first; fractions of whole numbers; bits seen as another type; a frozen
    whole number; logits that are not the first output."""

    def __init__(self):
        super().__init__()
        self.still, self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4)
        self.shift = nn.Parameter(torch.tensor([1, 2]), requires_grad=False)

    def forward(self, x):
        with torch.no_grad():
            h = F.dropout(torch.tanh(self.still(x)), 0.3, self.training)
        h = h + torch.arange(8) / 7 + torch.linspace(0, 1, 8) + self.shift.sum()
        for kept in (1.0, 0.5):
            h = h + torch.tanh(self.body(h)) * (h.new_empty(h.shape[0], 1).bernoulli_(kept) / kept if self.training else 1.0)
        h = h + torch.arange(8).view(torch.int32)[::2] / 9
        return {"hidden": h, "logits": self.head(F.dropout(h, 0.2, self.training))}


def test_what_few_programs_do(onebatch, tmp_path):
    case = Compiled(tmp_path, (Unusual, lambda: torch.randn(3, 6), {}, lambda: (torch.randn(23, 6), torch.randint(0, 4, (23,))), SMOOTHED, AS_SMOOTHED), "float64")
    assert error_of(case.train(onebatch, compiled=case.folder), case.train(onebatch)) <= 1e-12
    assert error_of(case.train(onebatch, compiled=case.folder, more=["batch.micro_batch_size=1"]), case.train(onebatch)) <= 1e-12
    # Of the four linear layers the last one's bias alone is not added by the kernel that follows.
    assert code_of(case.folder).count("aoti_torch_cpu_addmm_out(") == 1


class Deciding(nn.Module):
    """Fills up odd lengths."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        if x.shape[1] % 2 == 1:
            x = F.pad(x, (0, 0, 0, 1), value=1.0)
        return self.fc(x.mean(1))


def test_data_of_the_other_way_are_refused(onebatch, tmp_path):
    """The first samples, which are compared, are of the example's way, and so are those of one sample of a batch that the exporter took for two and more."""
    auto = torch.export.Dim.AUTO
    program = torch.export.export(Deciding().train(), (torch.randn(3, 6, 3),), dynamic_shapes={"x": {0: auto, 1: auto}})
    torch.export.save(program, tmp_path / "model.pt2")
    folder = compile_program(tmp_path / "model.pt2", precision="float64", loss=CROSS_ENTROPY, evaluation=False)
    for odd in (6, 7):
        lengths = torch.full((23,), 8)
        lengths[15] = odd
        (tmp_path / "train.safetensors").unlink(missing_ok=True)
        package.save_dataset(tmp_path / "train.safetensors", x=torch.randn(23, 8, 3), y=torch.randint(0, 4, (23,)), n=lengths)
        config = Scratch(tmp_path, CONFIG.replace("{folder}", str(tmp_path))).config
        wish = settings(f'run.name="of-{odd}"', f'model.compiled="{folder}"', "batch.micro_batch_size=1", 'data.lengths="n"')
        said = onebatch.run(1, "train", config, *wish, code=2 if odd == 7 else 0)
        assert ("without that condition" in said) == (odd == 7)


@pytest.mark.parametrize("precision, most, whole", [("float32", 1e-6, True), ("float64", 1e-12, False)])
def test_attention_of_any_length(precision, most, whole, onebatch, tmp_path):
    """An embedding's rows are added by the trainer; what is of two indices by atomics, and without them where the same bits are wished each time."""
    deterministic = ["--deterministic"] if precision == "float64" else []
    case = Compiled(tmp_path, (Attention, *OF_TOKENS[:-1], [*AS_SMOOTHED, *deterministic]), precision)
    code = code_of(case.folder)
    assert ("atomic_add" in code) != bool(deterministic) and code.count("onebatch.add_rows]") == 2
    assert ("_scaled_dot_product_flash_attention_for_cpu_backward" in code) == whole
    assert error_of(case.train(onebatch, compiled=case.folder), case.train(onebatch)) <= most


@pytest.mark.parametrize(
    "model, precision, by_itself",
    [(MLP, "bfloat16", False), (MLP, "float16", True), ((Added, *OF_TOKENS), "bfloat16", False), (CONVOLUTIONS, "bfloat16", False), (CONVOLUTIONS, "float16", True)],
    ids=["mlp", "mlp in float16", "attention", "convolutions", "convolutions in float16"],
)
def test_16_bits_are_as_near_as_autocast(model, precision, by_itself, onebatch, tmp_path):
    """To the same training in float64, with the same masks; compiled by the run, or by the command. In float16 with the loss scale."""
    case, python = Exported(tmp_path, model, precision), {"ONEBATCH_PYTHON": sys.executable}
    folder = "auto" if by_itself else tmp_path / "model.compiled"
    if not by_itself:
        onebatch.run(1, "compile", tmp_path / "model.pt2", "--precision", precision, "--deterministic", "--no-evaluation", *model[-1], environment=python, seconds=400)
    exact = case.train(onebatch, more=['precision.compute="float64"', 'precision.parameters="float64"'])
    own = error_of(case.train(onebatch), exact)
    said, weights = case.train_and_say(onebatch, compiled=folder, more=["run.deterministic=true"], environment=python)
    assert "is a compiled program" in said
    assert 1e-6 < error_of(weights, exact) <= 2.0 * own < 1e-2


def test_sums_that_float16_cannot_hold_are_no_difference(onebatch, tmp_path):
    """Of many positions, where the loss is multiplied as it is for few."""
    labels = torch.zeros(23, 3000, dtype=torch.int64)
    labels[:, 0] = 3
    case = Exported(tmp_path, (*SEGMENTS[:3], lambda: (torch.randn(23, 2, 3000), labels), *SEGMENTS[4:]), "float16")
    folder = compile_program(tmp_path / "model.pt2", precision="float16", loss=CROSS_ENTROPY | {"ignore_index": 1, "class_dim": "second", "class_weights": [1.0, 7.0, 0.25, 0.0]}, evaluation=False)
    assert "is a compiled program" in case.train_and_say(onebatch, compiled=folder)[0]


class Centred(nn.Module):
    """What is normalised has a mean that is small beside it."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second, self.head = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(F.relu(self.second(F.relu(self.norm(self.first(x))))).mean((2, 3)))


def test_running_means_are_as_near_as_the_program_s(onebatch, tmp_path):
    """In float32; else the comparison before the first step refuses it."""

    def images(rows):
        whole = torch.randn(rows, 3, 32, 32)
        return whole - whole.mean((2, 3), keepdim=True) + 1e-3

    case = Compiled(tmp_path, (Centred, lambda: images(3), {}, lambda: (images(23), torch.randint(0, 4, (23,))), SMOOTHED, AS_SMOOTHED), "float32")
    assert error_of(case.train(onebatch, compiled=case.folder), case.train(onebatch)) <= 1e-5


def test_code_takes_the_processor_s_vectors(tmp_path):
    """Also where the compiler has nothing in its cache, and finds out by trying."""
    if not VECTORS & set(instructions()):
        pytest.skip("a processor without vectors that the compiler knows")
    package.export(Mlp(), torch.randn(3, 6), tmp_path / "model.pt2", check=False)
    paths = os.pathsep.join([str(pathlib.Path(package.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"), PYTHONPATH=paths)
    subprocess.run([sys.executable, "-m", "onebatch", "compile", tmp_path / "model.pt2", "--loss", "cross_entropy", "--no-evaluation"], check=True, env=environment)
    assert "at::vec::Vectorized<float>" in code_of(tmp_path / "model.compiled")


HALF_OF_MEMORY = """
[run]
max_steps = 6
output_dir = "{{runs}}"
[batch]
global_batch_size = 1500
[data]
kind = "synthetic"
size = 3000
shape = [64]
[model]
kind = "exported"
path = "{folder}/model.pt2"
compiled = "{folder}/model.compiled"
[precision]
parameters = "float64"
compute = "float64"
[probe]
cache = false
steps_per_trial = 1
[comm]
overlap = true
bucket_cap_mb = 0.01
[simulate]
devices = [{{{{memory = "4MiB"}}}}, {{{{memory = "4MiB"}}}}]
"""


def test_where_memory_ends_in_a_step_it_is_done_again(faulty_onebatch, tmp_path, monkeypatch):
    """Native code has added some gradients by then, of which buckets may have left: nothing of that is in the sum, and the losses stay what they were."""
    monkeypatch.setattr(announcing, "BYTES", 1)
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 96), nn.Dropout(0.2), nn.Tanh(), nn.Linear(96, 10))
    package.export(model, torch.randn(3, 64), tmp_path / "model.pt2", check=False)
    compile_program(tmp_path / "model.pt2", precision="float64", loss=CROSS_ENTROPY, evaluation=False)
    losses = []
    for fault in ("-1 - 0 - -", "1 step 3 memory -"):
        scratch = Scratch(tmp_path, HALF_OF_MEMORY.format(folder=tmp_path))
        faulty_onebatch.run(2, "train", scratch.config, "--json", tmp_path / "r.json", environment={"ONEBATCH_FAULT": fault, "OMP_NUM_THREADS": "1"}, seconds=300)
        result = read_json(tmp_path / "r.json")
        losses.append([line["loss"] for line in read_json_lines(pathlib.Path(result["run_dir"]) / "metrics.jsonl")])
    assert result["out_of_memory_events"] >= 1 and result["replans"] >= 1
    assert len(losses[0]) == 6 and losses[1] == pytest.approx(losses[0], rel=1e-12)
