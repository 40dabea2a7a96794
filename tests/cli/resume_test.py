"""Runs that are interrupted (a rank killed, SIGUSR1 to mpirun, SIGTERM and SIGINT without it) and resumed on the same and on other ranks and batches."""
import json
import os
import pathlib
import random
import shutil
import signal
import time

import pytest

from program import Scratch, read_json, read_json_lines, read_safetensors, relative_l2, settings

# Slow enough to be interrupted in the middle: 30 steps of about 40 ms.
STEPS = 30
SLOW = """
[run]
epochs = 5
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = 257
[data]
kind = "idx"
path = "data/digits"
[data.validation]
[model]
kind = "resnet"
depth = 8
stem = "cifar"
[batch_norm]
frozen = false
[optimizer]
kind = "sgd"
lr = 0.02
momentum = 0.9
[schedule]
kind = "cosine"
[checkpoint]
every_steps = 4
keep = 0
[log]
samples = true
[probe]
max_val = 32
steps_per_trial = 1
[simulate]
devices = [{{slowdown = 1.0}}, {{slowdown = 1.5}}, {{slowdown = 1.2}}, {{slowdown = 1.0}}]
"""


@pytest.fixture(scope="module", autouse=True)
def drawn():
    """Steps at which a run is interrupted."""
    seed = random.randrange(10**6)
    print("seed", seed)
    return random.Random(seed)


class Run(Scratch):
    def __init__(self, program, path, *pairs):
        super().__init__(path, SLOW)
        self.program, self.settings = program, settings(*pairs)
        self.folder = self.runs / "run"
        self.last = self.folder / "checkpoints" / f"step-{STEPS}"

    def train(self, ranks, *arguments):
        return self.program.run(ranks, "train", self.config, *self.settings, *arguments)

    def lines(self, name):
        return read_json_lines(self.folder / f"{name}.jsonl")

    def saved(self):
        return sorted(int(path.name.split("-")[1]) for path in (self.folder / "checkpoints").iterdir() if path.name.startswith("step-"))

    def interrupt(self, ranks, how, step):
        """Starts it and interrupts it after so many steps."""
        process = self.program.start(ranks, "train", self.config, *self.settings)
        metrics = self.folder / "metrics.jsonl"
        deadline = time.monotonic() + 60
        while not (metrics.exists() and metrics.read_text().count("\n") >= step):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"step {step} was not reached\n{process.communicate()[0]}")
            time.sleep(0.01)
        if how == "kill":
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(random.choice(children)), signal.SIGKILL)
        else:
            process.send_signal(how)
        begin = time.monotonic()
        self.out = process.communicate(timeout=60)[0]
        self.seconds, self.code = time.monotonic() - begin, process.returncode


@pytest.fixture
def make_run(onebatch, tmp_path_factory):
    return lambda *pairs: Run(onebatch, tmp_path_factory.mktemp("run"), *pairs)


class Interrupted:
    """A run that was interrupted and resumed on the same ranks, and one of the same plan that nobody interrupted."""

    def __init__(self, program, folders, ranks, how, step):
        self.how, self.step = how, step
        self.broken = Run(program, folders.mktemp("broken"))
        self.broken.interrupt(ranks, how, step)
        self.partial = [path.name for path in (self.broken.folder / "checkpoints").iterdir() if "partial" in path.name]
        self.resumed = self.broken.train(ranks, "--resume")
        # The plan is part of what is bit-identical: from a checkpoint of the broken run's beginning.
        self.whole = Run(program, folders.mktemp("whole"))
        (self.whole.folder / "checkpoints").mkdir(parents=True)
        shutil.copytree(self.broken.folder / "checkpoints" / "step-4", self.whole.folder / "checkpoints" / "step-4")
        (self.whole.folder / "config.toml").write_text("")
        self.whole.train(ranks, "--resume")


@pytest.fixture(scope="module", params=((2, "kill"), (3, signal.SIGUSR1), (1, signal.SIGTERM), (1, signal.SIGINT)), ids=str)
def interrupted(request, onebatch, drawn, tmp_path_factory):
    ranks, how = request.param
    return Interrupted(onebatch, tmp_path_factory, ranks, how, drawn.randint(5, STEPS - 8))


def test_an_interrupted_run_ends_soon(interrupted):
    assert interrupted.broken.seconds < 10, interrupted.broken.out


def test_its_exit_code_and_words_say_how_it_ended(interrupted):
    if interrupted.how == "kill":
        assert interrupted.broken.code not in (0, 75)
        assert "signal 9" in interrupted.broken.out
    else:
        assert interrupted.broken.code == 75, interrupted.broken.out
        assert "; to go on" in interrupted.broken.out
        assert "--resume\n" in interrupted.broken.out


def test_a_signal_leaves_no_half_checkpoint(interrupted):
    assert interrupted.how == "kill" or interrupted.partial == []


def test_it_goes_on(interrupted):
    assert "goes on" in interrupted.resumed
    assert "resumed from" in interrupted.resumed


def test_resumed_it_is_the_uninterrupted_run_bit_for_bit(interrupted):
    broken, whole = (read_safetensors(run.last / "model.safetensors") for run in (interrupted.broken, interrupted.whole))
    assert [name for name in whole if broken[name] != whole[name]] == [], f"interrupted after step {interrupted.step}"
    assert broken.keys() == whole.keys()


def test_every_sample_and_step_is_counted_once(interrupted):
    for run in (interrupted.broken, interrupted.whole):
        assert read_json(run.last / "state.json")["consumed_samples"] == 7500
    assert [line["step"] for line in interrupted.broken.lines("metrics")] == list(range(1, STEPS + 1))


@pytest.mark.parametrize("precision, tolerance", (("float32", 1e-4), ("float64", 1e-10)))
def test_begun_on_two_ranks_and_resumed_on_three_it_is_the_run_of_one(make_run, drawn, precision, tolerance):
    pairs = (f"precision.compute={precision}", f"precision.parameters={precision}", "batch_norm.frozen=true")
    whole, broken = make_run(*pairs), make_run(*pairs)
    whole.train(1, "--quiet")
    broken.interrupt(2, signal.SIGUSR1, drawn.randint(5, STEPS - 8))
    assert broken.code == 75, broken.out
    assert "have changed since" in broken.train(3, "--resume"), "another number of ranks is said"
    assert relative_l2(read_safetensors(broken.last / "model.safetensors"), read_safetensors(whole.last / "model.safetensors")) <= tolerance
    assert broken.lines("samples") == whole.lines("samples")


def test_under_another_global_batch_the_same_order_of_samples_goes_on(make_run):
    run = make_run()
    run.interrupt(2, signal.SIGUSR1, 7)
    assert run.code == 75, run.out
    run.train(1, "--resume", *settings("batch.global_batch_size=100"), "--quiet")
    seen = [sample for line in run.lines("samples") for sample in line["indices"]]
    for epoch in range(5):
        assert sorted(seen[epoch * 1500 : (epoch + 1) * 1500]) == list(range(1500)), f"epoch {epoch} has every sample once"


def test_a_rest_smaller_than_the_fixed_number_of_steps_is_planned_freely(make_run):
    run = make_run()
    run.train(1, *settings("run.max_steps=5"), "--quiet")
    more = settings("batch.global_batch_size=106", "batch.gradient_accumulation_steps=4", "run.max_steps=10")
    run.train(1, "--resume", *more, "--quiet")
    sizes = [len(line["indices"]) for line in run.lines("samples")]
    assert sizes[:8] == [257] * 5 + [106, 106, 3]


BFLOAT16 = ("precision.compute=bfloat16", "precision.parameters=bfloat16")
KEPT_BY_THE_OPTIMIZER = {
    "momentum left out": ((), "optimizer.momentum=0.9", "optimizer.momentum=0", "with momentum: write optimizer.momentum above 0, or begin a new run"),
    "momentum begun": ((), "optimizer.momentum=0", "optimizer.momentum=0.9", "without momentum: write optimizer.momentum = 0, or begin a new run"),
    "masters left out": (BFLOAT16, "precision.master_weights=true", "precision.master_weights=false", "with masters of the parameters: write precision.master_weights = true,"),
    "masters begun": (BFLOAT16, "precision.master_weights=false", "precision.master_weights=true", "without masters of the parameters: write precision.master_weights = false,"),
}


@pytest.mark.parametrize("pairs, then, now, said", KEPT_BY_THE_OPTIMIZER.values(), ids=KEPT_BY_THE_OPTIMIZER)
def test_what_the_optimizer_keeps_by_another_key_is_said_by_that(onebatch, tmp_path, pairs, then, now, said):
    scratch = Scratch(tmp_path)
    onebatch.run(1, "train", scratch.config, "--quiet", *settings("run.max_steps=1", *pairs, then))
    out = onebatch.run(1, "train", scratch.config, "--resume", *settings("run.max_steps=2", *pairs, now), code=2)
    assert said in out and "is missing" not in out and "is not in the model" not in out


# By time: 30 steps of some 60 ms, on ranks whose clocks need not agree.
@pytest.mark.parametrize("minutes, ranks", ((0.005, 2), (0.005, 1), (0, 2)))
def test_checkpoints_are_saved_by_time(make_run, minutes, ranks):
    run = make_run("checkpoint.every_steps=0", f"checkpoint.every_minutes={minutes}")
    run.train(ranks, "--quiet")
    saved, seconds = run.saved(), [line["step_seconds"] for line in run.lines("metrics")]
    assert saved[-1] == STEPS
    assert (len(saved) > 1) == (minutes > 0), f"steps of {sum(seconds) / STEPS:.3f} s"
    for first, second in zip(saved, saved[1:-1]):
        assert sum(seconds[first:second]) >= 60 * minutes * 0.5, f"saved after {first} and {second} already"


def test_a_rank_that_had_no_samples_begins_with_the_others_running_statistics(make_run):
    """Its own are of nothing: mean 0, variance 1 and no batch."""
    run = make_run("batch_norm.frozen=false", "batch.global_batch_size=32", "batch.last_batch='drop'")
    plans = []
    for shares in ((32, 0), (16, 16)):
        ranks = [{"rank": rank, "device": "CPU", "samples": share, "micro_batches": [[16, share // 16]] if share else [], "predicted_seconds": 1.0, "idle_fraction": 0.0} for rank, share in enumerate(shares)]
        plans.append(run.path / f"{shares[1]}.json")
        plans[-1].write_text(json.dumps({"global_batch_size": 32, "predicted_step_seconds": 1.0, "ranks": ranks, "notes": [], "last_batch": None}))
    run.train(2, "--plan", plans[0], *settings("run.max_steps=8"))
    run.train(2, "--resume", "--plan", plans[1], *settings("run.max_steps=9"))
    before, after = (read_safetensors(run.folder / f"checkpoints/step-{step}/rank_buffers.safetensors") for step in (8, 9))
    counts = [name for name in after if name.startswith("rank1.") and name.endswith("num_batches_tracked")]
    assert counts and all(after[name] == (17,) and before[name] == (0,) for name in counts)
    variances = next(name for name in after if name.startswith("rank0.") and name.endswith("running_var"))
    held = before[variances]
    assert max(held) < 0.7, "far from the 1 that it begins with"
    # Of the batch of step 9 alone: new = 0.9 old + 0.1 of the batch.
    of_batch = [[(new - 0.9 * old) / 0.1 for new, old in zip(after[variances.replace("rank0", rank)], held, strict=True)] for rank in ("rank0", "rank1")]
    assert all(0.3 < other / own < 3 for own, other in zip(*of_batch, strict=True)), of_batch
