"""compile: what validation runs, and buckets of the gradient that leave while native code goes on."""
import shutil

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import onebatch as package  # noqa: E402
from compiled_cases import AS_SMOOTHED, MLP, OWN_LOSS, PYTHON, SMOOTHED, USED, Compiled, Exported, changed, error_of, kept_in  # noqa: E402
from onebatch import announcing  # noqa: E402
from onebatch.compiler_setting import own_results  # noqa: E402
from onebatch.compiling import CROSS_ENTROPY, TYPES, evaluating  # noqa: E402
from onebatch.graphs import InRun  # noqa: E402
from onebatch.refusals import ExportError  # noqa: E402
from program import read_json, read_json_lines, settings  # noqa: E402

VALIDATES = ["data.validation.fraction=0.3", "run.validate_every_steps=1", "run.max_steps=4"]
UNCOMPILED = "validation runs uncompiled: "


class Net(nn.Module):
    """What has two modes: BatchNorms with running statistics and without, dropouts, paths that are dropped, attention with dropout, a recurrent layer."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.own = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.BatchNorm2d(8, track_running_stats=False)
        self.gru, self.head = nn.GRU(8, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x):
        h = self.own(F.dropout2d(F.relu(self.norm(self.conv(x))), 0.2, self.training)).flatten(2).transpose(1, 2)
        kept = h.new_empty(h.shape[0], 1, 1).bernoulli_(0.7) / 0.7 if self.training else 1.0
        h = h + F.scaled_dot_product_attention(h[:, None], h[:, None], h[:, None], dropout_p=0.3 if self.training else 0.0)[:, 0] * kept
        return self.head(F.alpha_dropout(self.gru(h)[0].mean(1), 0.1, self.training))


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(F.dropout(torch.tanh(self.body(x)), 0.3, self.training))


def weighted(output, target):
    """The loss's sum, and its weight."""
    return F.cross_entropy(output, target, reduction="sum") * 2.0, (target + 1).sum().to(output.dtype)


IMAGES = (Net, lambda: torch.randn(4, 3, 2, 2), {}, lambda: (torch.randn(40, 3, 2, 2), torch.randint(0, 4, (40,))), SMOOTHED, AS_SMOOTHED)
OWN = (Dropping, lambda: torch.randn(4, 6), {"loss": weighted, "targets": torch.randint(0, 4, (4,))}, lambda: (torch.randn(40, 6), torch.randint(0, 4, (40,))), OWN_LOSS, [])


def validations(case):
    """Of the last run."""
    run = max(case.scratch.runs.iterdir(), key=lambda folder: int(folder.name[1:]))
    return [{key: value for key, value in line.items() if key in ("loss", "accuracy")} for line in read_json_lines(run / "validation.jsonl")]


@pytest.mark.parametrize("model, ranks", ((IMAGES, 1), (OWN, 2)), ids=("images", "its own loss"))
def test_it_validates_as_the_program(model, ranks, onebatch, tmp_path):
    case = Compiled(tmp_path, model, evaluation=True)
    weights = case.train(onebatch, more=VALIDATES)
    expected = validations(case)
    said, found = case.train_and_say(onebatch, ranks=ranks, compiled=case.folder, more=VALIDATES)
    assert USED in said and UNCOMPILED not in said, said
    assert error_of(found, weights) <= 1e-12
    assert len(expected) == 4 and len({line["loss"] for line in expected}) == 4
    for line, due in zip(validations(case), expected, strict=True):
        assert line == pytest.approx(due, rel=1e-12)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """In float32, where native code rounds otherwise."""
    return Compiled(tmp_path_factory.mktemp("made"), IMAGES, "float32", evaluation=True)


def test_validation_is_native_code_s(made, onebatch, tmp_path):
    """The weights are the same bits, and their losses are not."""
    _, weights = made.train_and_say(onebatch, compiled=made.folder, more=VALIDATES)
    native = validations(made)
    copy = tmp_path / "copy"
    shutil.copytree(made.folder, copy)
    changed(copy, lambda document: document.pop("evaluation"))
    said, others = made.train_and_say(onebatch, compiled=copy, more=VALIDATES)
    assert f"{USED}; {UNCOMPILED}it was left out (--no-evaluation)" in said
    assert error_of(weights, others) == 0.0 and native != validations(made)
    for line, due in zip(native, validations(made), strict=True):
        assert line["loss"] == pytest.approx(due["loss"], rel=1e-5)


def test_a_run_that_does_not_validate_says_nothing_of_it(made, onebatch):
    said, _ = made.train_and_say(onebatch, compiled=made.folder)
    assert USED in said and "validation" not in said


def test_a_damaged_one_is_refused_by_name(made, onebatch, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(made.folder, copy)
    raw = bytearray((copy / "evaluation.pt2").read_bytes())
    raw[len(raw) // 2] ^= 1
    (copy / "evaluation.pt2").write_bytes(raw)
    said, _ = made.train_and_say(onebatch, compiled=copy, more=VALIDATES, code=2)
    assert "is damaged: evaluation.pt2 is not what was compiled: make it anew by onebatch compile" in said and "--no-evaluation" not in said


class Other(Net):
    """With another slope."""

    def forward(self, x):
        return super().forward(x) * 1.001


def test_one_that_is_not_true_is_not_used(made, onebatch, tmp_path):
    other = Exported(tmp_path, (Other, *IMAGES[1:]), "float32")
    copy = tmp_path / "copy"
    shutil.copytree(made.folder, copy)
    cpu = torch.device("cpu")
    with own_results():
        found = evaluating(InRun(other.scratch.path / "model.pt2", TYPES["float32"], CROSS_ENTROPY, cpu), copy / "evaluation.pt2", cpu)
    changed(copy, lambda document: document.update(evaluation=found))
    said, _ = made.train_and_say(onebatch, compiled=copy, more=VALIDATES)
    assert f"{USED}; {UNCOMPILED}its native code is 0.001 off, and the program's own error is " in said


def test_what_cannot_be_compiled_validates_by_the_program(onebatch, tmp_path, monkeypatch):
    def cannot_be(_):
        raise ExportError("it is like that; train it with model.compiled = \"never\"")

    monkeypatch.setattr(InRun, "evaluation", cannot_be)
    case = Compiled(tmp_path, OWN, evaluation=True)
    weights = case.train(onebatch, more=VALIDATES)
    expected = validations(case)
    said, found = case.train_and_say(onebatch, compiled=case.folder, more=VALIDATES)
    assert f"{USED}; {UNCOMPILED}it is like that\n" in said
    assert error_of(found, weights) <= 1e-12
    for line, due in zip(validations(case), expected, strict=True):
        assert line == pytest.approx(due, rel=1e-12)


@pytest.mark.parametrize("steady", (True, False), ids=("steady", "timed"))
def test_the_run_makes_it_where_it_validates(steady, onebatch, tmp_path):
    case = Exported(tmp_path, MLP)
    more = [*VALIDATES, *["run.deterministic=true"] * steady]
    said, _ = case.train_and_say(onebatch, compiled="auto", more=more, environment={**PYTHON, "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert (kept_in(said) / "evaluation.pt2").is_file()
    if steady:
        assert USED in said and UNCOMPILED not in said
    else:
        assert ("of the time uncompiled" in said) == (USED in said) and (USED in said or "the run goes on uncompiled: compiled micro-batches take" in said)


def trained_with_timeline(case, onebatch, pairs):
    """The weights of two ranks; when the first bucket of a step began, of its last micro-batch's time, on rank 0: the median."""
    trace = case.scratch.path / "trace.json"
    onebatch.run(2, "train", case.scratch.config, *settings('run.name="r99"', *pairs), "--timeline", trace)
    spans = [event for event in read_json(trace)["traceEvents"] if event["ph"] == "X" and event["pid"] == 0]
    buckets = sorted(event["ts"] for event in spans if event["name"] == "bucket")
    begun = []
    for event in sorted((event for event in spans if event["name"] == "micro-batch"), key=lambda event: event["ts"]):
        later = [at for at in buckets if at >= event["ts"]]
        begun.append((min(later) - event["ts"]) / event["dur"])
    steps = sorted(begun[-20:])  # before them are those that the run measures
    return package.load_checkpoint(case.scratch.runs / "r99"), steps[10]


class Chain(nn.Module):
    """Whose backward is most of it, and of one matrix after the other."""

    def __init__(self):
        super().__init__()
        self.first, self.body, self.head = nn.Linear(6, 400), nn.Sequential(*(nn.Linear(400, 400) for _ in range(8))), nn.Linear(400, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.body(F.dropout(self.first(x), 0.1, self.training))))


def test_buckets_leave_while_native_code_goes_on(onebatch, tmp_path, monkeypatch):
    """Sooner than from code that tells of nothing."""
    when, weights = {}, {}
    for bytes_at_once in (1 << 40, 1):
        monkeypatch.setattr(announcing, "BYTES", bytes_at_once)
        (tmp_path / str(bytes_at_once)).mkdir()
        case = Compiled(tmp_path / str(bytes_at_once), (Chain, *MLP[1:3], OWN[3], SMOOTHED, [*AS_SMOOTHED, "--deterministic"]))
        pairs = [f'model.compiled="{case.folder}"', "comm.bucket_cap_mb=0.5", "batch.micro_batch_size=5", "batch.gradient_accumulation_steps=1", "run.max_steps=20", "run.deterministic=true"]
        weights[bytes_at_once], when[bytes_at_once] = trained_with_timeline(case, onebatch, [*pairs, "comm.overlap=true"])
    assert when[1] < when[1 << 40] - 0.1, when
    whole = case.train(onebatch, ranks=2, more=[*pairs, "comm.overlap=false"])
    assert error_of(weights[1], whole) == 0.0 and error_of(weights[1 << 40], whole) <= 1e-12
    assert error_of(whole, case.train(onebatch, more=["run.max_steps=20"])) <= 1e-12


class Penalised(nn.Module):
    """A matrix that is multiplied with, whose rows are looked up, and whose squares are in the loss."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Parameter(torch.randn(4, 6)), nn.Linear(6, 4)

    def forward(self, x):
        near = x @ self.table.t()
        return self.head(torch.tanh(x + F.embedding(near.argmax(1), self.table))) + near + self.table.square().sum() * 1e-3


def test_sums_that_are_written_to_twice(onebatch, tmp_path, monkeypatch):
    monkeypatch.setattr(announcing, "BYTES", 1)
    case = Compiled(tmp_path, (Penalised, *MLP[1:]))
    pairs = [f'model.compiled="{case.folder}"', "comm.bucket_cap_mb=0.0001", "comm.overlap=true"]
    assert error_of(case.train(onebatch, ranks=2, more=pairs), case.train(onebatch)) <= 1e-12
