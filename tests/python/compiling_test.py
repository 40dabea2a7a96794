"""compile: native code trains as the program does that it was made of, in float64, on other sizes than it was exported with; what is refused, before any of it runs."""
import json
import pathlib
import shutil
from unittest import mock

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import onebatch as package  # noqa: E402
from compiled_cases import AS_SMOOTHED, CONFIG, MLP, OWN_LOSS, SEGMENTS, SMOOTHED, WORDS, Compiled, Mlp, error_of  # noqa: E402
from image_folders import MIXED, make_images  # noqa: E402
from onebatch.compiling import CROSS_ENTROPY, OPTIONS, compile_program, described  # noqa: E402
from onebatch.keyed import Draws, mix_bits, signed  # noqa: E402
from onebatch.refusals import ExportError  # noqa: E402
from program import Scratch, settings  # noqa: E402


class Gpt(nn.Module):
    """A block with dropout in its attention, of its tokens as rows and of positions that all samples share, any length, and its head tied to its words."""

    def __init__(self):
        super().__init__()
        self.words, self.positions, self.qkv, self.out, self.norm = nn.Embedding(WORDS, 8), nn.Parameter(torch.randn(16, 8)), nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8)
        self.head = nn.Linear(8, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        h = self.words(x) + F.dropout(self.positions[: x.shape[1]], 0.2, self.training)
        q, k, v = (one.unflatten(2, (2, 4)).transpose(1, 2) for one in self.qkv(self.norm(h)).chunk(3, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2 if self.training else 0.0, is_causal=True)
        tokens = F.dropout(self.out(mixed.transpose(1, 2).flatten(2)).flatten(0, 1), 0.1, self.training)
        return self.head(h + tokens.unflatten(0, x.shape[:2]))


class ConvNet(nn.Module):
    """A value that is written to in place and then read under its first name, and a side head, which the loss does not take, with a BatchNorm."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head, self.shift = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 4), nn.Parameter(torch.randn(4, 1, 1))
        self.side = nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(32, 4))

    def forward(self, x):
        y = self.norm(self.conv(x))
        y.add_(self.shift)
        return self.head(F.dropout2d(F.relu(y), 0.25, self.training).mean((2, 3))), self.side(x)


class Numbers(nn.Module):
    """Several numbers of a sample."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x):
        return self.b(F.dropout(torch.tanh(self.a(x)), 0.3, self.training)).unflatten(1, (2, 3))


def by_tokens(output, target):
    counted = target != 0
    return F.cross_entropy(output.flatten(0, 1), target.flatten(), reduction="sum", ignore_index=0), counted.sum().to(output.dtype)


SQUARES, AS_SQUARES = '[loss]\nkind = "mse"\n', ["--loss", "mse"]

# model, what is exported, with what, data of other sizes, the rest of the configuration, what it is compiled with
CASES = {
    "mlp": MLP,
    "gpt": (
        Gpt,
        lambda: torch.randint(0, WORDS, (3, 5)),
        {"loss": by_tokens, "targets": torch.randint(0, WORDS, (3, 5)), "dynamic": {"x": {1: "length"}, "target": {1: "length"}}},
        lambda: (torch.randint(0, WORDS, (23, 9)), torch.randint(0, WORDS, (23, 9))),
        OWN_LOSS,
        [],
    ),
    "conv": (ConvNet, lambda: torch.randn(3, 3, 6, 6), {}, lambda: (torch.randn(23, 3, 6, 6), torch.randint(0, 4, (23,))), SMOOTHED, AS_SMOOTHED),
    "numbers": (Numbers, lambda: torch.randn(3, 6), {}, lambda: (torch.randn(23, 6), torch.randn(23, 2, 3)), SQUARES, AS_SQUARES),
    "one-hot": (*MLP[:4], SQUARES, AS_SQUARES),
    "classes second": SEGMENTS,
    "weighted labels": (
        *MLP[:3],
        lambda: (torch.randn(23, 6), torch.randint(0, 4, (23,)), torch.rand(23)),
        SMOOTHED + "class_weights = [1.0, 0.25, 3.0, 0.5]\n",
        [*AS_SMOOTHED, "--class-weights", "1,0.25,3,0.5", "--label-weights", "given"],
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    kept = {}

    def get(name):
        if name not in kept:
            kept[name] = Compiled(tmp_path_factory.mktemp(name), CASES[name])
        return kept[name]

    return get


@pytest.mark.parametrize("name", CASES)
def test_native_code_trains_as_the_program_does(name, made, onebatch):
    case = made(name)
    assert error_of(case.train(onebatch, compiled=case.folder), case.train(onebatch)) <= 1e-12


def test_mixed_images(onebatch, tmp_path):
    """Two labels of a sample, each with its weight; where files are skipped, others have one, too."""
    make_images(tmp_path / "images")
    torch.manual_seed(5)
    package.export(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 6 * 8, 3)), torch.randn(3, 3, 8, 10), tmp_path / "model.pt2", check=False)
    loss = CROSS_ENTROPY | {"label_weights": "mixed", "class_weights": [1.0, 2.0, 0.5]}
    folder = compile_program(tmp_path / "model.pt2", precision="float64", loss=loss, evaluation=False)
    config = MIXED.replace('kind = "mlp"\nhidden = [5]', f'kind = "exported"\npath = "{tmp_path}/model.pt2"') + "[loss]\nclass_weights = [1.0, 2.0, 0.5]\n"
    scratch = Scratch(tmp_path, config)
    for broken in ("stop", "skip"):
        if broken == "skip":
            (tmp_path / "images/ant/3.png").write_text("no image")
        for run, compiled in {"plain": "never", "compiled": folder}.items():
            onebatch.run(2, "train", scratch.config, *settings(f'run.name="{run}-{broken}"', f'model.compiled="{compiled}"', f'data.on_broken="{broken}"'))
        plain, found = (package.load_checkpoint(scratch.runs / f"{run}-{broken}") for run in ("plain", "compiled"))
        assert error_of(found, plain) <= 1e-12


LOSSES = {
    "too few weights": ({"class_weights": [1.0, 2.0]}, "there are 2 class weights, and the program returns 4 classes: write one for each"),
    "another place": ({"class_dim": "third"}, "class_dim is 'third': write one of last, second"),
}


@pytest.mark.parametrize("loss, words", LOSSES.values(), ids=LOSSES)
def test_a_loss_that_does_not_go_with_the_program(loss, words, made):
    folder = made("mlp").folder.parent
    with pytest.raises(ExportError, match=words):
        compile_program(folder / "model.pt2", folder / "none.compiled", "float64", CROSS_ENTROPY | loss)


def test_mixed_samples_have_a_row_of_classes(made):
    folder = made("classes second").folder.parent
    with pytest.raises(ExportError, match=r"3 dimensions, and cross entropy takes \[samples, classes\]"):
        compile_program(folder / "model.pt2", folder / "none.compiled", "float64", CROSS_ENTROPY | {"label_weights": "mixed"})


def test_micro_batches_of_one_sample(made, onebatch):
    case = made("gpt")
    assert error_of(case.train(onebatch, compiled=case.folder, more=["batch.micro_batch_size=1"]), case.train(onebatch)) <= 1e-12


@pytest.fixture(scope="module")
def by_export(tmp_path_factory):
    """In float32, what one call has written and compiled, with activations that are most of what a small device has room for."""
    folder = tmp_path_factory.mktemp("by_export")
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 256), nn.Tanh(), nn.Dropout(0.3), nn.Linear(256, 4))
    package.export(model, torch.randn(3, 6), folder / "model.pt2", check=False, compile=True)
    package.save_dataset(folder / "train.safetensors", x=torch.randn(230, 6), y=torch.randint(0, 4, (230,)))
    return CONFIG.replace("{folder}", str(folder)).replace("float64", "float32"), folder / "model.compiled"


def test_float32_by_export(by_export, onebatch, tmp_path):
    config, folder = by_export
    scratch = Scratch(tmp_path, config)
    for run, compiled in {"plain": "never", "compiled": folder}.items():
        onebatch.run(1, "train", scratch.config, *settings(f'run.name="{run}"', f'model.compiled="{compiled}"'))
    plain, found = (package.load_checkpoint(scratch.runs / run) for run in ("plain", "compiled"))
    assert 0.0 < error_of(found, plain) <= 1e-6


def test_where_memory_ends_less_is_tried(by_export, onebatch, tmp_path):
    """The code's failures have no name."""
    config, folder = by_export
    scratch = Scratch(tmp_path, config.replace("micro_batch_size = 4", "").replace("= 10", "= 200"))
    said = onebatch.run(1, "train", scratch.config, *settings(f'model.compiled="{folder}"', "simulate.devices=[{memory = '150KiB'}]", "probe.cache=false", "probe.mode=power"))
    trials = json.loads((scratch.runs / "run/profile.json").read_text())["ranks"][0]["trials"]
    assert any(trial["out_of_memory"] for trial in trials) and "done: 3 steps" in said, said
    assert "aoti_torch" not in said  # nobody need hear of a trial's stack traces


class Times(nn.Module):
    """A buffer and a constant that float32 does not hold, and booleans."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 4)
        self.register_buffer("start", torch.tensor([1_700_000_061.0], dtype=torch.float64))

    def forward(self, seconds, hidden):
        since = seconds[:, None] - self.start - torch.tensor([16777217.0, 16777219.0], dtype=torch.float64)
        return self.fc((since / 60).float() * (~hidden).float())


def test_types_of_inputs_and_of_what_a_program_holds(onebatch, tmp_path):
    def given(samples):
        return 1_700_000_061 + 2**24 + torch.randint(0, 120, (samples,)), torch.rand(samples, 2) > 0.6

    torch.manual_seed(5)
    package.export(Times(), given(3), tmp_path / "model.pt2", check=False)
    compile_program(tmp_path / "model.pt2", loss=CROSS_ENTROPY, evaluation=False)
    seconds, hidden = given(23)
    package.save_dataset(tmp_path / "train.safetensors", seconds=seconds, hidden=hidden, y=torch.randint(0, 4, (23,)))
    scratch = Scratch(tmp_path, CONFIG.replace("{folder}", str(tmp_path)).replace("float64", "float32").replace('["x"]', '["seconds", "hidden"]'))
    for run, compiled in {"plain": "never", "compiled": tmp_path / "model.compiled"}.items():
        onebatch.run(1, "train", scratch.config, *settings(f'run.name="{run}"', f'model.compiled="{compiled}"'))
    plain, found = (package.load_checkpoint(scratch.runs / run) for run in ("plain", "compiled"))
    assert found["start"].item() == 1_700_000_061 and error_of({"fc": found["fc.weight"]}, {"fc": plain["fc.weight"]}) <= 1e-6


@pytest.mark.parametrize("name", ["mlp", "gpt"])
def test_masks_are_the_same_on_three_ranks(name, made, onebatch):
    case = made(name)
    assert error_of(case.train(onebatch, ranks=3, compiled=case.folder), case.train(onebatch)) <= 1e-12


def test_without_dropout_the_weights_are_others(made, onebatch):
    """The comparisons above would see a mask that is another one."""
    case = made("mlp")
    assert error_of(case.train(onebatch, compiled=case.folder, more=["run.seed=2"]), case.train(onebatch)) > 1e-6


def test_verify_holds(made, onebatch):
    case = made("gpt")
    onebatch.run(2, "verify", case.scratch.config, *settings(f'model.compiled="{case.folder}"'))


def test_code_trains_without_python(made, onebatch, tmp_path):
    """There is none to be found, and what the loader has opened in each process that was started names none."""
    case = made("mlp")
    bare = {"PATH": "/nonexistent", "PYTHONPATH": None, "PYTHONHOME": None, "VIRTUAL_ENV": None, "ONEBATCH_PYTHON": "/bin/false"}
    case.train(onebatch, compiled=case.folder, environment={**bare, "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(tmp_path / "opened")})
    records = [path.read_text(errors="replace") for path in tmp_path.glob("opened.*")]
    started = {line.split()[-1] for record in records for line in record.splitlines() if "initialize program:" in line}
    libraries = {pathlib.Path(line.split()[-1]).name for record in records for line in record.splitlines() if "calling init:" in line}
    assert started == {onebatch.path}
    assert any(name.startswith("libtorch_cpu") for name in libraries) and not [name for name in libraries if "python" in name]
    assert [name for name in libraries if name.endswith(".wrapper.so")], f"the package's code is among {sorted(libraries)}"


def test_it_is_said_that_code_runs(made, onebatch):
    case = made("mlp")
    said = onebatch.run(1, "train", case.scratch.config, *settings('run.name="said"', f'model.compiled="{case.folder}"'))
    assert "it is code, and runs with your rights" in said


def changed(case, target, **fields):
    shutil.copytree(case.folder, target)
    file = target / "compiled.json"
    document = json.loads(file.read_text())
    for place, value in fields.items():
        *path, last = place.split("__")
        part = document
        for name in path:
            part = part[name]
        part[last] = value
    file.write_text(json.dumps(document))
    return target


def flipped(case, target):
    shutil.copytree(case.folder, target)
    raw = bytearray((target / "training.pt2").read_bytes())
    raw[len(raw) // 2] ^= 1
    (target / "training.pt2").write_bytes(raw)
    return target


def cut(case, target):
    shutil.copytree(case.folder, target)
    raw = (target / "training.pt2").read_bytes()
    (target / "training.pt2").write_bytes(raw[:-100])
    return target


REFUSED = {
    "another torch": (lambda case, target: changed(case, target, torch="2.10.1"), "was made by PyTorch 2.10.1"),
    "another architecture": (lambda case, target: changed(case, target, machine__architecture="s390x"), "another machine, of s390x"),
    "other instructions": (lambda case, target: changed(case, target, machine__instructions=["avx9000"]), "processor knows avx9000"),
    "another device": (lambda case, target: changed(case, target, machine__device="cuda"), "was made for a GPU"),
    "another precision": (lambda case, target: changed(case, target, precision="float32"), "was made for precision.compute = \"float32\""),
    "another loss": (lambda case, target: changed(case, target, loss={"kind": "model"}), "loss.kind = \"model\""),
    "another smoothing": (lambda case, target: changed(case, target, loss__label_smoothing=0.2), "loss.label_smoothing = 0.2"),
    "other weights of labels": (lambda case, target: changed(case, target, loss__label_weights="given"), "labels whose weights are given, and this run's are none"),
    "another program": (lambda case, target: changed(case, target, program__sha1="0" * 40), "another program than model.path"),
    "no parameters": (lambda case, target: changed(case, target, training__gradients=[]), "names no parameter that is trained"),
    "too many parameters": (lambda case, target: changed(case, target, training__gradients=["a.weight"] * 99), "names more parameters than it has inputs"),
    "flipped": (flipped, "is damaged"),
    "cut": (cut, "is damaged"),
    "no folder": (lambda case, target: target, "no folder of a compiled program"),
}


def test_a_run_of_the_same_bits_refuses_code_that_may_make_others(made, onebatch):
    said = made("mlp").train(onebatch, compiled=made("mlp").folder, more=["run.deterministic=true"], code=2)
    assert "may add in another order each time" in said and "--deterministic" in said


@pytest.mark.parametrize("device, words", {"gpu": "write cpu, cuda, or cuda:1", "cuda:": "write cpu, cuda", "cuda:7": "PyTorch sees 0 GPUs here"}.items())
def test_devices_that_are_not_here_are_refused(device, words, made, tmp_path):
    if "sees 0" in words and torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(ExportError, match=words):
        compile_program(made("mlp").folder.parent / "model.pt2", tmp_path / "out", device=device)


@pytest.mark.parametrize("make, words", REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_by_name(make, words, made, onebatch, tmp_path):
    case = made("mlp")
    said = case.train(onebatch, compiled=make(case, tmp_path / "other"), code=2)
    assert words in said and "make it anew by onebatch compile" in said


WRONG_MODES = {
    "bitwise": ("mlp", 'run.deterministic="bitwise"', "run.deterministic"),
    "recomputed": ("mlp", 'memory.recompute="auto"', "memory.recompute"),
    "exact": ("conv", 'batch_norm.mode="exact"', 'batch_norm.mode = \\"local\\"'),
    "frozen": ("conv", "batch_norm.frozen=true", "batch_norm.frozen"),
}


@pytest.mark.parametrize("name, pair, words", WRONG_MODES.values(), ids=WRONG_MODES)
def test_modes_that_take_programs_apart_are_refused(name, pair, words, made, onebatch):
    case = made(name)
    assert words.replace("\\", "") in case.train(onebatch, compiled=case.folder, more=[pair], code=2)


def test_classes_elsewhere_are_refused(made, onebatch, tmp_path):
    case = made("classes second")
    said = case.train(onebatch, compiled=changed(case, tmp_path / "other", loss__class_dim="last"), code=2)
    assert 'was made for loss.class_dim = "last", and this run\'s is "second"' in said and "--class-dim second" in said


def test_a_gradient_that_is_another_is_not_used(made, onebatch, tmp_path):
    """Two gradients that have changed places: of the same shapes, so that nothing else can tell."""
    case = made("mlp")
    names = json.loads((case.folder / "compiled.json").read_text())["training"]["gradients"]
    one, other = names.index("b.bias"), names.index("c.bias")
    names[one], names[other] = names[other], names[one]
    assert "it is not used" in case.train(onebatch, compiled=changed(case, tmp_path / "other", training__gradients=names), code=2)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.scale = nn.Linear(6, 4), nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.fc(x) * self.scale.exp()


def test_code_that_holds_a_parameter_is_not_used(onebatch, tmp_path):
    """As the compiler would have it of a single number: right at the first step alone."""
    package.export(Scaled(), torch.randn(3, 6), tmp_path / "model.pt2", check=False)
    package.save_dataset(tmp_path / "train.safetensors", x=torch.randn(23, 6), y=torch.randint(0, 4, (23,)))
    with mock.patch.dict(OPTIONS, {"joint_graph_constant_folding": True}):
        folder = compile_program(tmp_path / "model.pt2", precision="float64", loss=CROSS_ENTROPY, evaluation=False)
    config = Scratch(tmp_path, CONFIG.replace("{folder}", str(tmp_path))).config
    assert "it is not used" in onebatch.run(1, "train", config, *settings(f'model.compiled="{folder}"'), code=2)


KEYS = {
    "another output": (['model.output="0"'], "model.output"),
    "float16": (['precision.compute="float16"', 'precision.parameters="float32"'], 'made for precision.compute = "float64"'),
    "bfloat16 alone": (['precision.compute="bfloat16"', 'precision.parameters="bfloat16"'], 'precision.parameters = "float32"'),
    "bfloat16": (['precision.compute="bfloat16"', 'precision.parameters="float32"'], 'made for precision.compute = "float64"'),
    "class weights": (["loss.class_weights=[1,2,1,1]"], "loss.class_weights = [], and this run's are [1, 2, 1, 1]: make it anew by onebatch compile {folder}/model.pt2 --precision float64 --loss cross_entropy --label-smoothing 0.1 --class-weights 1,2,1,1"),
    "another loss": (['loss.kind="mse"', "loss.label_smoothing=0.0"], "onebatch compile {folder}/model.pt2 --precision float64 --loss mse"),
}


@pytest.mark.parametrize("pairs, words", KEYS.values(), ids=KEYS)
def test_keys_that_do_not_go_with_it_are_named(pairs, words, made, onebatch):
    case = made("mlp")
    said = case.train(onebatch, compiled=case.folder, more=pairs, code=2)
    assert words.format(folder=case.folder.parent) in said and "model.compiled" in said


def test_draws_are_mix_bits_of_whole_numbers():
    """Against Python's own integers."""

    def mixed(x):
        mask = 2**64 - 1
        x = (x + 0x9E3779B97F4A7C15) & mask
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    numbers = [0, 1, 2**40, 2**63, 2**64 - 1, 0x123456789ABCDEF0]
    assert [value % 2**64 for value in mix_bits(torch.tensor([signed(number) for number in numbers])).tolist()] == [mixed(number) for number in numbers]
    draws = Draws(torch.tensor([7, 2**41]), torch.tensor(99))
    draws.layers = 3
    kept = draws.kept((2, 3, 5), 0.4)
    for place, sample in enumerate((7, 2**41)):
        key = mixed(mixed(99 ^ 3) ^ sample)
        expected = [[(mixed((mixed(key ^ i) + j) % 2**64) >> 32) >= int(0.4 * 2**32) for j in range(5)] for i in range(3)]
        assert kept[place].tolist() == expected


def test_draws_of_any_number_of_rows_are_those_of_this_one():
    """Of a sample's only row the key is the sample's, also where an export does not know that there is one."""

    class Kept(nn.Module):
        def forward(self, samples, x):
            torch._check(samples.shape[0] == x.shape[0])
            return Draws(samples, torch.tensor(99)).kept(x.flatten(0, 1).shape, 0.4)

    dynamic = {0: torch.export.Dim("n", min=1, max=64), 1: torch.export.Dim("rows", min=1, max=64)}
    made = torch.export.export(Kept(), (torch.arange(3), torch.zeros(3, 5, 6)), dynamic_shapes=({0: dynamic[0]}, dynamic), strict=False).module(check_guards=False)
    for samples, rows in ((2, 1), (3, 4), (1, 2)):
        given = torch.arange(7, 7 + samples), torch.zeros(samples, rows, 6)
        assert torch.equal(made(*given), Kept()(*given))


def test_a_program_whose_batch_is_fixed_is_refused():
    """As the compiler makes of transformers' Swin."""
    with pytest.raises(ExportError, match="takes the number of samples for 3"):
        described(torch.export.export(Mlp(), (torch.randn(3, 6),)))
