"""Native code whose BatchNorms have the statistics of all micro-batches and ranks: against one batch in PyTorch, and against the program as it is."""
import platform
import shutil

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")
from safetensors.torch import load_file  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import onebatch as package  # noqa: E402
from compiled_cases import PYTHON, USED, Compiled, changed, error_of  # noqa: E402
from onebatch.compiling import compile_program  # noqa: E402
from onebatch.refusals import ExportError  # noqa: E402
from program import read_json, read_json_lines, settings  # noqa: E402

EXACT, SYNC = 'batch_norm.mode="exact"', 'batch_norm.mode="sync"'
DROP = 'batch.last_batch="drop"'
SAMPLES, SIZE = 23, 21


class Block(nn.Module):
    """Two branches, one of which has a BatchNorm without weights."""

    def __init__(self, width):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1, bias=False), nn.Conv2d(width, width, 1)
        self.norm_a, self.norm_b, self.norm_c = nn.BatchNorm2d(width), nn.BatchNorm2d(width, momentum=0.3), nn.BatchNorm2d(width, affine=False, eps=1e-3)

    def forward(self, x):
        return F.relu(self.norm_b(self.b(F.relu(self.norm_a(self.a(x))))) + self.norm_c(self.c(x)))


class Net(nn.Module):
    """A frozen stem, whose BatchNorm is trained; one of rows, without running statistics; weights that are standardised, which share nothing; one that no gradient reaches."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = dropout
        self.stem, self.norm, self.block = nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), Block(4)
        self.standard, self.seen = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.stem.weight.requires_grad_(False)
        self.rows, self.last = nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 4)

    def forward(self, x):
        h = self.block(F.relu(self.norm(self.stem(x))))
        weight = F.batch_norm(self.standard.weight.reshape(1, 4, -1), None, None, training=True).reshape_as(self.standard.weight)
        h = h + F.conv2d(h, weight, self.standard.bias) + self.seen(h).detach()
        h = self.rows(h.mean((2, 3)))
        return self.last(F.dropout(h, self.dropout, self.training))


def case_of(dropout):
    data = lambda: (torch.randn(SAMPLES, 2, SIZE, SIZE) * 2 + 1, torch.randint(0, 4, (SAMPLES,)))  # noqa: E731
    return lambda: Net(dropout), lambda: torch.randn(3, 2, SIZE, SIZE), {}, data, "[log]\nsamples = true\n", ["--loss", "cross_entropy", "--shared-batch-norm"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return Compiled(tmp_path_factory.mktemp("plain"), case_of(0.0))


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    return Compiled(tmp_path_factory.mktemp("masked"), case_of(0.4))


def newest(case):
    return max(case.scratch.runs.iterdir(), key=lambda path: path.stat().st_mtime)


def large_batch(case):
    """The same steps by PyTorch, each batch at once."""
    torch.manual_seed(5)
    model, data = Net().double().train(), load_file(case.scratch.path / "train.safetensors")
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], 0.1)
    for line in read_json_lines(newest(case) / "samples.jsonl"):
        optimizer.zero_grad()
        F.cross_entropy(model(data["x"][line["indices"]].double()), data["y"][line["indices"]]).backward()
        optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize("ranks, micro, batch", [(1, 10, 10), (1, 3, 10), (2, [4, 3], 10), (3, [1, 2, 5], 10), (3, [1, 1, 1], 2)])
def test_it_is_the_large_batch(ranks, micro, batch, plain, onebatch):
    """Weights and running statistics, whatever the plan; also with a rank that has no samples."""
    weights = plain.train(onebatch, ranks, compiled=plain.folder, more=[EXACT, f"batch.micro_batch_size={micro}", f"batch.global_batch_size={batch}", DROP])
    assert error_of(weights, large_batch(plain)) <= 1e-12
    for rank in read_json(newest(plain) / "profile.json")["ranks"]:  # what native code keeps
        assert rank["memory"]["kept_bytes_per_sample"] > 0 and rank["memory"]["activation_bytes_per_sample"] == 0


@pytest.mark.parametrize("ranks, micro, batch", [(1, 4, 10), (2, [4, 3], 14)])
def test_in_lock_step_it_is_the_program(ranks, micro, batch, masked, onebatch):
    """One micro-batch of every rank shares statistics; with masks. There is one plan alone."""
    pairs = [SYNC, f"batch.micro_batch_size={micro}", f"batch.global_batch_size={batch}", DROP]
    of_program, of_code = (masked.train(onebatch, ranks, compiled=compiled, more=pairs) for compiled in (None, masked.folder))
    assert 0.0 < error_of(of_code, of_program) <= 1e-12


def room(case, samples):
    """KiB of a device that has room for so many samples' activations, by the last run's profile."""
    rank = read_json(newest(case) / "profile.json")["ranks"][0]
    per_sample = rank["memory"]["activation_bytes_per_sample"] + rank["memory"]["kept_bytes_per_sample"]
    return int(rank["resident_bytes"] + samples * per_sample) // 1024


def playing(*kibibytes):
    devices = ", ".join(f'{{memory = "{size}KiB"}}' for size in kibibytes)
    return [f"simulate.devices=[{devices}]", 'batch.micro_batch_size="auto"']


def test_ranks_without_room_for_all_activations_compute_them_again(masked, onebatch):
    """By the program itself; with masks, and of unlike ranks."""
    of_program = masked.train(onebatch, more=[EXACT])
    assert error_of(masked.train(onebatch, compiled=masked.folder, more=[EXACT, 'batch.micro_batch_size="auto"']), of_program) <= 1e-12
    small, large = room(masked, 3.0), room(masked, 12.0)
    for devices in ((large, large), (small, small)):
        said, weights = masked.train_and_say(onebatch, 2, compiled=masked.folder, more=[EXACT, *playing(*devices)])
        assert ("computes activations again" in said) == (devices == (small, small))
        assert (0.0 if devices == (large, large) else -1.0) < error_of(weights, of_program) <= 1e-12
    one_plan = [EXACT, "batch.global_batch_size=14", "batch.gradient_accumulation_steps=2", DROP]  # of 10 and 4 samples
    said, weights = masked.train_and_say(onebatch, 2, compiled=masked.folder, more=[*playing(large, small), *one_plan, "batch.micro_batch_size=[5, 2]"])
    assert "rank 1 computes activations again" in said
    assert read_json(newest(masked) / "plan.json")["ranks"][1]["recomputes"]  # of the other one times decide
    assert error_of(weights, masked.train(onebatch, more=[*one_plan, "batch.micro_batch_size=7"])) <= 1e-12


@pytest.mark.parametrize("fault, said", [("1 step 2 memory", "the program, which computes them again"), ("1 exchange 5 throw", "rank 1 (vm): this was planned by a test (exchange)"), ("0 exchange 9 throw", "rank 0 (vm): this was planned by a test (exchange)")])
def test_what_fails_in_the_middle_of_native_code(fault, said, plain, faulty_onebatch, tmp_path):
    """Memory: the step is done again, and the rank keeps no more activations, beside one of native code. An exchange, of the forward or the backward: the run ends, and says where."""
    pairs = [EXACT, f'model.compiled="{plain.folder}"', 'run.name="fault"', "comm.timeout_seconds=10", *playing(1 << 13, 1 << 13), "batch.micro_batch_size=5", "batch.global_batch_size=20", DROP]
    shutil.rmtree(plain.scratch.runs / "fault", ignore_errors=True)
    found = faulty_onebatch.run(2, "train", plain.scratch.config, *settings(*pairs), code=0 if "memory" in fault else 1, environment={"ONEBATCH_FAULT": f"{fault} {tmp_path}/moment"}, seconds=60)
    assert said.replace("vm", platform.node()) in found and "frame #" not in found
    if "memory" in fault:
        assert "native code on rank 0" not in found and error_of(package.load_checkpoint(plain.scratch.runs / "fault"), large_batch(plain)) <= 1e-12


@pytest.mark.parametrize("frozen", ["norm.*", "block.*"])
def test_parameters_that_only_the_run_freezes(frozen, masked, onebatch):
    """Code has their gradients; the program's backward ends before their BatchNorms, or goes through them."""
    pairs = [f'model.freeze=["{frozen}"]', EXACT]
    of_program = masked.train(onebatch, more=pairs)
    assert 0.0 < error_of(masked.train(onebatch, 2, compiled=masked.folder, more=[*pairs, "batch.micro_batch_size=[4, 3]"]), of_program) <= 1e-12


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_in_few_bits_it_is_as_near_as_the_program(precision, onebatch, tmp_path):
    case = Compiled(tmp_path, case_of(0.4), precision)
    exact = case.train(onebatch, more=[EXACT, 'precision.compute="float64"', 'precision.parameters="float64"'])
    own, of_code = (error_of(case.train(onebatch, 2, compiled=compiled, more=[EXACT, "batch.micro_batch_size=[4, 3]"]), exact) for compiled in (None, case.folder))
    assert own > 1e-8 and of_code != own and of_code <= 2.0 * own < 0.1


def test_too_many_micro_batches_at_once_run_by_the_program(plain, onebatch, tmp_path):
    """Which is said, and changes nothing."""
    count = 520
    package.save_dataset(tmp_path / "many.safetensors", x=torch.randn(count, 2, SIZE, SIZE), y=torch.randint(0, 4, (count,)))
    pairs = [EXACT, f'data.path="{tmp_path}/many.safetensors"', f"batch.global_batch_size={count}", "run.max_steps=1", "verify.at_start=false"]
    said, weights = plain.train_and_say(onebatch, compiled=plain.folder, more=[*pairs, "batch.micro_batch_size=1"])
    assert f"asked for native code; did run the program uncompiled, since {count} micro-batches would be under way together" in said
    assert error_of(weights, plain.train(onebatch, more=[*pairs, "batch.micro_batch_size=52"])) <= 1e-12


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.other, self.norm = nn.Linear(6, 4), nn.Linear(4, 3), nn.BatchNorm1d(3)

    def forward(self, x):
        h = self.body(x)
        return h, self.norm(self.other(h))


def test_a_batch_norm_that_the_loss_does_not_depend_on_is_refused_by_name(tmp_path):
    package.export(TwoHeads(), torch.randn(3, 6), tmp_path / "model.pt2", check=False)
    with pytest.raises(ExportError, match="BatchNorms that its loss does not depend on"):
        compile_program(tmp_path / "model.pt2", loss={"kind": "cross_entropy"}, shared_batch_norm=True)


def test_verify_holds_it_to_the_large_batch(masked, onebatch):
    said = onebatch.run(2, "verify", masked.scratch.config, *settings(f'model.compiled="{masked.folder}"', EXACT, "batch.micro_batch_size=[4, 3]"))
    assert USED in said and "PASS: this is the gradient of the single large batch" in said


def test_a_batch_of_one_value_per_channel_is_refused(plain, onebatch):
    said = plain.train(onebatch, compiled=plain.folder, more=[EXACT, "batch.global_batch_size=1", "batch.micro_batch_size=1"], code=2)
    assert "has one value per channel in the whole batch, which would be its own mean" in said and "frame #" not in said


def test_code_for_other_statistics_is_refused_by_name(plain, onebatch, tmp_path):
    assert 'was made for batch_norm.mode = "sync" or "exact", and this run\'s is another' in plain.train(onebatch, compiled=plain.folder, code=2)
    local = shutil.copytree(plain.folder, tmp_path / "local")
    changed(local, lambda document: document.update(shared_batch_norm=False))
    said = plain.train(onebatch, compiled=local, more=[EXACT], code=2)
    assert 'was made for batch_norm.mode = "local"' in said and "--shared-batch-norm" in said


def test_the_run_makes_it(plain, onebatch):
    said, weights = plain.train_and_say(onebatch, 2, compiled="auto", more=[EXACT, "run.deterministic=true", "batch.micro_batch_size=[4, 3]"], environment=PYTHON)
    assert USED in said and error_of(weights, large_batch(plain)) <= 1e-12
