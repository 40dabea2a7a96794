"""Where BatchNorm makes a plan a part of the result: how its micro-batches are, what is said, and that the same plan comes again."""
import ctypes
import ctypes.util
import json
import re
import signal
import subprocess
import time

import pytest

from program import ROOT, Scratch, read_json, settings

RESNET = """
[run]
max_steps = 4
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = 200
[data]
kind = "idx"
path = "data/digits"
[model]
kind = "resnet"
depth = 8
stem = "cifar"
[optimizer]
kind = "sgd"
lr = 0.02
[probe]
cache = false
steps_per_trial = 1
[simulate]
devices = [{{slowdown = 1.0}}, {{slowdown = 3.0}}]
"""
OTHER_DEVICES = settings("run.name=other", "simulate.devices=[{slowdown = 3.0}, {slowdown = 1.0}]")


# Of which one sample fits where activations are computed again, and not otherwise.
SCARCE = """
[run]
max_steps = 2
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = 4
[data]
kind = "synthetic"
shape = [3, 64, 64]
size = 64
[model]
kind = "resnet"
depth = 20
stem = "cifar"
[batch_norm]
frozen = true
[optimizer]
kind = "sgd"
[memory]
recompute = "auto"
[probe]
cache = false
steps_per_trial = 1
[verify]
at_start = false
[simulate]
devices = [{{memory = "8MiB"}}]
"""


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def rewrite(checkpoint, state):
    """Another state under a manifest that is true of it."""
    xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash"))
    xxhash.XXH3_128bits.argtypes, xxhash.XXH3_128bits.restype = [ctypes.c_char_p, ctypes.c_size_t], Hash128
    text = json.dumps(state).encode()
    (checkpoint / "state.json").write_bytes(text)
    digest = xxhash.XXH3_128bits(text, len(text))
    manifest = read_json(checkpoint / "manifest.json")
    manifest["files"]["state.json"] = {"bytes": len(text), "checksum": f"{digest.high:016x}{digest.low:016x}"}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


def sizes(plan):
    return [[tuple(run) for run in rank["micro_batches"]] for rank in plan["ranks"]]


def weights(scratch, name):
    return (scratch.runs / name / "checkpoints" / "latest" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def trained(onebatch, tmp_path_factory):
    """A run on two ranks, with its plan."""
    made = Scratch(tmp_path_factory.mktemp("trained"), RESNET)
    made.out = onebatch.run(2, "train", made.config, *settings("probe.max_val=30", "checkpoint.every_steps=2"))
    made.file = made.runs / "run" / "plan.json"
    made.plan = read_json(made.file)
    return made


@pytest.fixture
def scratch(tmp_path):
    return Scratch(tmp_path, RESNET)


def test_there_is_no_small_micro_batch_beside_large_ones(trained):
    flat = [size for rank in sizes(trained.plan) for size, _ in rank]
    assert 15 <= min(flat) <= max(flat) <= 30


def test_that_the_plan_is_part_of_the_result_is_said_once(trained):
    assert len(re.findall(r"BatchNorm takes its statistics from each micro-batch \(of \d+ to \d+ samples\).*--plan", trained.out)) == 1


def test_another_machine_would_make_another_plan(onebatch, trained):
    onebatch.run(2, "plan", trained.config, *OTHER_DEVICES, "--json", trained.path / "other.json")
    assert sizes(read_json(trained.path / "other.json")) != sizes(trained.plan)


def test_a_given_plan_repeats_the_run_there_bit_for_bit(onebatch, trained):
    out = onebatch.run(2, "train", trained.config, *OTHER_DEVICES, "--plan", trained.file)
    assert "the plan is that of" in out
    assert "rank 0 was" in out and "and is" in out, "devices that differ are named"
    assert "probe of every rank" not in out
    assert sizes(read_json(trained.runs / "other" / "plan.json")) == sizes(trained.plan)
    assert weights(trained, "other") == weights(trained, "run")


def test_verify_looks_at_a_given_plan(onebatch, trained):
    out = onebatch.run(2, "verify", trained.config, "--plan", trained.file, code=5)
    assert "the plan is that of" in out
    assert "BatchNorm is local" in out


# What is not of this world is refused by name, and leaves nothing.
@pytest.mark.parametrize("ranks, command, pairs, words", (
    (1, "train", (), "plan.json is for 2 rank(s), but 1 were started"),
    (2, "train", ("batch.global_batch_size=100",), "is for a global batch of 200, but batch.global_batch_size is 100"),
    (2, "verify", ("batch.micro_batch_size=8",), "but batch.micro_batch_size is 8"),
))
def test_a_plan_of_another_run_is_refused(onebatch, trained, scratch, ranks, command, pairs, words):
    assert words in onebatch.run(ranks, command, scratch.config, "--plan", trained.file, *settings(*pairs), code=2)
    assert not scratch.runs.exists() or scratch.folders() == []


def test_a_plan_whose_sums_are_wrong_is_refused(onebatch, trained, scratch):
    first, second = trained.plan["ranks"]
    (scratch.path / "bad.json").write_text(json.dumps(dict(trained.plan, ranks=[dict(first, samples=first["samples"] + 1), second])))
    assert "add up to its samples" in onebatch.run(2, "train", scratch.config, "--plan", scratch.path / "bad.json", code=2)
    assert not scratch.runs.exists() or scratch.folders() == []


def test_a_plan_that_is_not_there_is_refused(onebatch, scratch):
    assert "no such file" in onebatch.run(2, "train", scratch.config, "--plan", scratch.path / "none.json", code=2)
    assert not scratch.runs.exists() or scratch.folders() == []


def test_a_plan_that_does_not_fit_is_refused(onebatch, trained, scratch):
    first, second = trained.plan["ranks"]
    ranks = [dict(first, samples=200, micro_batches=[[200, 1]], micro_batch_seconds=[1.0]), dict(second, samples=0, micro_batches=[], micro_batch_seconds=[])]
    (scratch.path / "one.json").write_text(json.dumps(dict(trained.plan, ranks=ranks)))
    tight = settings('simulate.devices=[{memory = "3MiB"}, {memory = "3MiB"}]')
    assert "micro-batches of 200 do not fit on rank 0" in onebatch.run(2, "train", scratch.config, *tight, "--plan", scratch.path / "one.json", code=3)


class Rewritten:
    """A checkpoint whose checksums hold, and that says something else."""

    def __init__(self, program, trained):
        self.program, self.scratch = program, trained
        self.checkpoint = trained.runs / "run" / "checkpoints" / "step-4"
        self.state = read_json(self.checkpoint / "state.json")

    def train(self, ranks, name, changes, code=0):
        rewrite(self.checkpoint, dict(self.state, **changes))
        pairs = (f"checkpoint.resume={self.checkpoint}", "run.max_steps=5", "batch_norm.frozen=true", f"run.name={name}")
        return self.program.run(ranks, "train", self.scratch.config, *settings(*pairs), code=code)


@pytest.fixture
def rewritten(onebatch, trained):
    made = Rewritten(onebatch, trained)
    yield made
    rewrite(made.checkpoint, made.state)


def test_half_of_each_batch_is_not_left_out_where_a_checkpoint_says_one_rank(rewritten):
    out = rewritten.train(1, "whole", {"world_size": 1, "devices": rewritten.state["devices"][:1], "shares": rewritten.state["shares"][:1]})
    assert "the run's plan is for 2 rank(s), but 1 were started: probing and planning anew" in out
    assert [rank["samples"] for rank in read_json(rewritten.scratch.runs / "whole" / "plan.json")["ranks"]] == [200]


@pytest.mark.parametrize("key, value", (("step", 3.7), ("step", 2**63), ("step", -5), ("global_batch_size", 0), ("world_size", 2**40), ("world_size", 3)))
def test_a_number_that_cannot_be_is_refused(rewritten, key, value):
    out = rewritten.train(2, "odd", {key: value}, code=2)
    assert "state.json" in out
    assert "must be a whole number" in out or "names 2 devices of 3 rank(s)" in out


def test_a_small_remainder_of_a_fixed_micro_batch_is_said(onebatch, scratch):
    out = onebatch.run(1, "plan", scratch.config, *settings("batch.micro_batch_size=66"))
    assert "statistics of as few as 2 samples" in out
    assert "[batch] fixes" in out


def test_what_memory_does_not_hold_is_said(onebatch, scratch):
    out = onebatch.run(1, "plan", scratch.config, *settings("probe.max_val=11"), "--json", scratch.path / "p.json")
    planned = sizes(read_json(scratch.path / "p.json"))
    assert planned == [[(10, 10), (11, 9)]] or min(size for size, _ in planned[0]) == 10
    assert "statistics of as few as 10 samples" in out
    assert "memory does not hold more" in out


@pytest.mark.parametrize("pairs, words", ((("probe.max_val=11", "batch_norm.min_micro_batch_size=1"), "statistics of"), (("batch_norm.frozen=true",), "statistics")))
def test_nothing_is_said_where_nothing_is_asked_for(onebatch, scratch, pairs, words):
    assert words not in onebatch.run(1, "plan", scratch.config, *settings(*pairs))


def test_killed_before_its_first_checkpoint_the_plan_comes_again(onebatch, scratch):
    """A fresh process, on a machine whose speeds have changed."""
    process = onebatch.start(2, "train", scratch.config, *settings("run.max_steps=100000"))
    metrics = scratch.runs / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)  # mpirun; its ranks follow
    process.communicate()
    while subprocess.run(["pgrep", "-f", str(scratch.config)], capture_output=True).returncode == 0:
        time.sleep(0.1)
    before = read_json(scratch.runs / "run" / "plan.json")
    (scratch.runs / "run" / "profile.json").unlink()
    out = onebatch.run(2, "train", scratch.config, "--resume")
    assert "begins again there" in out
    assert read_json(scratch.runs / "run" / "plan.json") == before
    assert "probe of every rank" not in out
    assert scratch.folders() == ["run"]


def test_one_rank_may_recompute_beside_others(onebatch, tmp_path):
    roomy = settings('simulate.devices=[{memory = "8MiB"}, {memory = "1GiB"}]', "comm.timeout_seconds=60")
    scratch = Scratch(tmp_path, SCARCE)
    onebatch.run(2, "train", scratch.config, *roomy)
    assert [rank["recomputes"] for rank in read_json(scratch.runs / "run" / "plan.json")["ranks"]] == [True, False]


def test_a_plan_that_recomputes_is_followed_as_it_was_made(onebatch, tmp_path):
    scratch = Scratch(tmp_path, SCARCE)
    onebatch.run(1, "train", scratch.config)
    file = scratch.runs / "run" / "plan.json"
    assert [rank["recomputes"] for rank in read_json(file)["ranks"]] == [True]
    for arguments in (["train", "--resume", *settings("run.max_steps=4")], ["train", "--plan", file, *settings("run.name=other", "run.max_steps=4")]):
        assert "probe of every rank" not in onebatch.run(1, arguments[0], scratch.config, *arguments[1:])
    roomy = settings('simulate.devices=[{memory = "32MiB"}]')  # verify holds more than a run
    assert "the plan is that of" in onebatch.run(1, "verify", scratch.config, "--plan", file, *roomy)
    assert weights(scratch, "other") == weights(scratch, "run")


def test_profiles_of_one_device_are_told_apart_by_their_files_names(onebatch, tmp_path):
    first = read_json(ROOT / "docs/profiles/v100-p100.json")["ranks"][0]
    slower = dict(first, step_seconds=[[size, 3.0 * seconds] for size, seconds in first["step_seconds"]])
    for name, rank in (("bert", first), ("resnet", slower)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"ranks": [rank]}))
    plan = ("plan", "configs/v100-p100.toml", "--profiles", tmp_path, "--gradient-bytes", "102e6", "--json", tmp_path / "plan.out")
    said = onebatch.run(1, *plan, "--devices", "4xV100-16GB", code=2)
    assert 'several files have different profiles of "V100-16GB" (bert.json, resnet.json): write a file\'s own name instead, as in --devices 4xbert' in said
    onebatch.run(1, *plan, "--devices", "1xbert,1xresnet")
    fast, slow = (rank["samples"] for rank in read_json(tmp_path / "plan.out")["ranks"])
    assert fast > 2 * slow
    (tmp_path / "resnet.json").write_text((tmp_path / "bert.json").read_text())
    onebatch.run(1, *plan, "--devices", "4xV100-16GB")
