"""memory.recompute = "auto" with native code: a rank that cannot keep its activations computes them again, and the gradient is one."""
import json
import re
import shutil

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from compiled_cases import AS_SMOOTHED, PYTHON, SMOOTHED, USED, Exported, changed, error_of, kept_in  # noqa: E402
from program import settings  # noqa: E402

AGAIN = "computes activations again instead of keeping them: not even the least micro-batch fits otherwise"


class Deep(nn.Module):
    """Few weights, many activations, and masks."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))
        self.last = nn.Linear(32, 4)

    def forward(self, x):
        for layer in self.layers:
            x = x + F.dropout(F.gelu(layer(F.layer_norm(x, (32,)))), 0.2, self.training)
        return self.last(x.mean(1))


DEEP = (Deep, lambda: torch.randn(4, 256, 32), {}, lambda: (torch.randn(24, 256, 32), torch.randint(0, 4, (24,))), SMOOTHED, AS_SMOOTHED)
WITH_BOTH = ["run.deterministic=true", 'memory.recompute="auto"', 'batch.micro_batch_size="auto"', "batch.global_batch_size=12"]  # no choice by times


class Made:
    """A program, and what its first run has made: both variants."""

    def __init__(self, folder, onebatch):
        self.onebatch, self.case = onebatch, Exported(folder, DEEP)
        self.said, self.weights = self.case.train_and_say(onebatch, compiled="auto", more=WITH_BOTH, environment=PYTHON)
        self.place = kept_in(self.said)

    def of_run(self, name):
        """Of the last run."""
        runs = self.case.scratch.runs
        return json.loads((runs / f"r{len(list(runs.iterdir())) - 1}" / name).read_text())

    def train(self, ranks=1, more=(), **options):
        return self.case.train_and_say(self.onebatch, ranks, compiled=self.place, more=[*WITH_BOTH, *more], **options)


@pytest.fixture(scope="module")
def made(onebatch, tmp_path_factory):
    return Made(tmp_path_factory.mktemp("made"), onebatch)


def playing(*kibibytes, more=""):
    devices = ", ".join(f'{{memory = "{size}KiB"{more}}}' for size in kibibytes)
    return [f"simulate.devices=[{devices}]"]


@pytest.fixture(scope="module")
def room(made):
    """KiB of a device that has room for so many samples' activations."""
    rank = made.of_run("profile.json")["ranks"][0]
    return lambda samples: int(rank["resident_bytes"] + samples * rank["memory"]["activation_bytes_per_sample"]) // 1024


@pytest.fixture(scope="module")
def unlike(room):
    """One has under a third of the other's."""
    return playing(room(3.0), room(0.8))


def test_the_run_makes_both_variants_and_keeps_activations_where_it_can(made):
    assert (made.place / "lean.pt2").is_file() and USED in made.said and AGAIN not in made.said
    assert made.of_run("profile.json")["ranks"][0]["recomputes"] is False


def test_it_trains_as_the_program(made, onebatch):
    assert error_of(made.weights, made.case.train(onebatch, more=WITH_BOTH)) <= 1e-12


def test_a_rank_that_has_no_room_computes_them_again(made, room):
    said, weights = made.train(more=playing(room(0.8)))
    assert f"rank 0 {AGAIN}" in said and "frame #" not in said  # of what runs out of memory in a trial nobody need hear
    assert made.of_run("profile.json")["ranks"][0]["recomputes"] is True
    assert error_of(weights, made.weights) <= 1e-12


def test_a_rank_whose_micro_batches_are_too_small_to_be_quick_computes_them_again(made, room):
    """A micro-batch of 1 takes nearly as long as one of 2 or 3."""
    slow_start = playing(room(1.2), more=", step_seconds = [[1, 0.2], [8, 0.25]]")
    said, weights = made.train(more=slow_start)
    assert re.search(r"rank 0 computes activations again instead of keeping them, for micro-batches of up to \d: a step is planned to take 0\.[1-6]", said)
    assert made.of_run("plan.json")["ranks"][0]["recomputes"] is True and error_of(weights, made.weights) <= 1e-12


def test_without_the_setting_the_variant_is_not_used(made, room):
    said, _ = made.train(more=[*playing(room(0.8)), 'memory.recompute="off"'], code=3)
    assert "not even a micro-batch of 1, by which it is compared, fits on CPU simulating" in said and 'write memory.recompute = "auto"' in said


def test_unlike_ranks_have_one_gradient(made, unlike):
    said, weights = made.train(2, unlike)
    assert f"rank 1 {AGAIN}" in said and made.of_run("plan.json")["ranks"][1]["recomputes"] is True
    assert error_of(weights, made.weights) <= 1e-12


def test_verify_holds_the_rank_that_computes_again_to_the_large_batch(made, unlike, onebatch):
    pairs = [f'model.compiled="{made.place}"', *WITH_BOTH, *unlike]
    said = onebatch.run(2, "verify", made.case.scratch.config, *settings(*pairs))
    assert f"rank 1 {AGAIN}" in said and "PASS: this is the gradient of the single large batch" in said


def test_a_package_without_the_variant_is_refused_by_name(made, tmp_path):
    one = tmp_path / "one"
    shutil.copytree(made.place, one)
    changed(one, lambda document: document.pop("lean"))
    said, _ = made.case.train_and_say(made.onebatch, compiled=one, more=WITH_BOTH, code=2)
    assert 'keeps all activations, and memory.recompute = "auto" is to compute them again' in said and "--recompute" in said


def test_a_damaged_variant_is_refused_by_name(made, tmp_path):
    one = tmp_path / "one"
    shutil.copytree(made.place, one)
    code = bytearray((one / "lean.pt2").read_bytes())
    code[len(code) // 2] ^= 1
    (one / "lean.pt2").write_bytes(code)
    said, _ = made.case.train_and_say(made.onebatch, compiled=one, more=WITH_BOTH, code=2)
    assert "is damaged: lean.pt2 is not what was compiled" in said


def test_a_number_of_segments_is_refused_by_name(made):
    said, _ = made.train(more=["memory.recompute=3"], code=2)
    assert 'does not go with a number of segments: write memory.recompute = "auto"' in said
