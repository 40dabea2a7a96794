"""Data workers change nothing of what is trained: same samples, same losses, same weights, whatever they read ahead, resumed or not; what cannot be read ends every rank
and is named; what ranks wait for is told, and none of it is computing."""
import json
import os
import pathlib
import re
import statistics
import time

import pytest

from program import DIGITS_MLP, DIGITS_RESNET, Scratch, read_json, read_json_lines, settings

STEPS = 50  # of 6 an epoch
FIXED = 'global_batch_size = 257\nmicro_batch_size = [32, 48, 16]'
MODELS = {
    "mlp": DIGITS_MLP,
    "resnet exact": DIGITS_RESNET + '[batch_norm]\nmode = "exact"\n',
    "resnet sync": DIGITS_RESNET + '[batch_norm]\nmode = "sync"\n',
    "bitwise": DIGITS_MLP.replace("[run]", '[run]\ndeterministic = "bitwise"'),
}
AUGMENTED = "[data.augment]\ncrop_padding = 1\nhorizontal_flip = true\n"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def configuration(text, ranks, steps=STEPS, more=""):
    sizes = FIXED if ranks == 3 and "bitwise" not in text else FIXED.replace("[32, 48, 16]", "32")
    return text.replace("epochs = 3", f"max_steps = {steps}").replace("global_batch_size = 257", sizes).replace("[data.validation]", AUGMENTED + more)


class Run:
    """`like`: another, whose plan it follows: ranks that are measured share otherwise each time, which another order of additions shows."""

    def __init__(self, onebatch, scratch, ranks, name, *changes, like=None):
        plan = ["--plan", like.folder / "plan.json"] if like else []
        fixed = ("comm.overlap=false", 'batch.replan="never"')
        self.out = onebatch.run(ranks, "train", scratch.config, *settings(f'run.name="{name}"', *fixed, *changes), *plan, environment=ONE_THREAD, seconds=300)
        self.folder = pathlib.Path(scratch.runs / name)
        self.metrics = read_json_lines(self.folder / "metrics.jsonl")
        self.samples = (self.folder / "samples.jsonl").read_text()
        self.losses = [line["loss"] for line in self.metrics]
        self.weights = (self.folder / "checkpoints/latest/model.safetensors").read_bytes()

    def equals(self, other):
        return self.samples == other.samples and self.losses == other.losses and self.weights == other.weights


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("ranks", [1, 3])
def test_any_number_of_workers_trains_the_same_bits(onebatch, tmp_path, model, ranks):
    steps = STEPS if model == "mlp" else 14
    scratch = Scratch(tmp_path, configuration(MODELS[model], ranks, steps))
    without = Run(onebatch, scratch, ranks, "none", "data.workers=0")
    assert len(without.losses) == steps and len(set(without.losses)) == steps
    for workers in (1, 4):
        assert Run(onebatch, scratch, ranks, f"with{workers}", f"data.workers={workers}", like=without).equals(without), workers
    # and the augmentation is in it
    assert Run(onebatch, scratch, ranks, "plain", "data.workers=1", "data.augment.crop_padding=0", "data.augment.horizontal_flip=false").losses != without.losses


@pytest.mark.parametrize("ranks", [1, 3])
def test_resumed_in_mid_epoch_with_other_workers_trains_the_same_bits(onebatch, tmp_path, ranks):
    scratch = Scratch(tmp_path, configuration(DIGITS_MLP, ranks))
    whole = Run(onebatch, scratch, ranks, "whole", "data.workers=0")
    Run(onebatch, scratch, ranks, "parts", "data.workers=4", "run.max_steps=27", like=whole)
    again = Run(onebatch, scratch, ranks, "parts", "data.workers=1", f"run.max_steps={STEPS}", 'checkpoint.resume="auto"', like=whole)
    assert "resumed from" in again.out
    assert again.equals(whole)


# What can go wrong with a worker, on one of two ranks.

def faulty(faulty_onebatch, tmp_path, fault, *changes, seconds=120):
    text = configuration(DIGITS_MLP, 1, 400, "").replace("micro_batch_size = 32", "micro_batch_size = 16")
    even = "devices = [{{step_seconds = [[16, 0.002]]}}, {{step_seconds = [[16, 0.002]]}}]"  # both ranks have samples
    scratch = Scratch(tmp_path, re.sub(r"devices = \[.*\]", even, text))
    begin = time.monotonic()
    command = faulty_onebatch.command_line(2, "train", scratch.config, *settings("comm.overlap=false", "comm.timeout_seconds=4", *changes))
    stacks = f"{pathlib.Path(faulty_onebatch.path).parents[1]}:{os.environ['PATH']}"  # onebatch-stacks lies above it
    done = faulty_onebatch.finish(command, {**ONE_THREAD, "PATH": stacks, "ONEBATCH_FAULT": fault.format(moment=tmp_path / "moment")}, seconds)
    return done, time.monotonic() - begin, scratch


@pytest.mark.parametrize("workers", [0, 3])
def test_a_sample_that_cannot_be_read_ends_every_rank_and_is_named(faulty_onebatch, tmp_path, workers):
    # The fault is of every sample from this one on: the last of the data set, which no probe reads.
    last = 1499
    done, _, scratch = faulty(faulty_onebatch, tmp_path, f"1 reader {last} throw {{moment}}", f"data.workers={workers}")
    words = done.stdout + done.stderr
    assert done.returncode == 1, words
    assert f"sample {last} of the training data: this was planned by a test (reader)" in words and "rank 1" in words, words


def test_a_worker_that_a_disk_never_answers_does_not_hold_up_the_end(faulty_onebatch, tmp_path):
    done, seconds, scratch = faulty(faulty_onebatch, tmp_path, "1 reader 1499 loop {moment}", "data.workers=1")
    words = done.stdout + done.stderr
    assert done.returncode not in (0, None), words
    assert "rank 1" in words, words
    assert seconds < 60, words
    stacks = [text for file in (scratch.runs / "run").glob("incident-*.txt") for text in [file.read_text()]]
    assert any("(data worker 0)" in text and "loops_for_ever" in text for text in stacks), words


# What waiting costs and what is said of it.

def slow(faulty_onebatch, tmp_path, *changes, seconds="0.0004", steps=150):
    text = configuration(DIGITS_MLP, 1, steps).replace("global_batch_size = 257", "global_batch_size = 64").replace("hidden = [64, 48]", "hidden = [1024, 1024]")
    scratch = Scratch(tmp_path, text)
    out = faulty_onebatch.run(1, "train", scratch.config, *settings('run.name="slow"', *changes), "--json", tmp_path / "result.json",
                              environment={**ONE_THREAD, "ONEBATCH_SLOW_READER": seconds}, seconds=300)
    return out, read_json_lines(scratch.runs / "slow/metrics.jsonl"), read_json(tmp_path / "result.json")


def waits(lines):
    return statistics.median(line["data_wait_seconds"][0] for line in lines)


def test_workers_go_on_reading_while_a_step_ends(faulty_onebatch, tmp_path):
    """A micro-batch takes longer to read than a step to compute: eight workers are eight times as fast, by the clock."""
    _, lines, _ = slow(faulty_onebatch, tmp_path, "data.workers=8", seconds="0.004", steps=60)
    seconds = (lines[-1]["time"] - lines[20]["time"]) / (len(lines) - 21)
    assert seconds < 64 * 0.004 / 2, f"{seconds:.3f} s a step"


def test_slow_data_is_said_and_is_no_computing(faulty_onebatch, tmp_path):
    out, lines, result = slow(faulty_onebatch, tmp_path, "data.workers=0", seconds="0.0015", steps=60)
    assert waits(lines) > 64 * 0.0015
    assert statistics.median(line["compute_seconds"][0] for line in lines) < 0.5 * waits(lines)
    assert out.count("waits for data") == 1 and 'data.workers = "auto"' in out, out
    assert result["data_wait_seconds"] == pytest.approx(sum(line["data_wait_seconds"][0] for line in lines), rel=1e-6)


def test_workers_begin_where_reading_holds_training_up(faulty_onebatch, tmp_path):
    out, lines, _ = slow(faulty_onebatch, tmp_path)
    assert re.search(r"data workers? reads? ahead", out), out
    before, after = waits(lines[2:8]), waits(lines[-40:])
    assert before > 64 * 0.0004 > after, (before, after)


def test_workers_of_another_rank_are_said(faulty_onebatch, tmp_path):
    """Samples are slow to read on rank 1 alone, and rank 0 speaks."""
    text = configuration(DIGITS_MLP, 1, 40).replace("global_batch_size = 257", "global_batch_size = 64").replace("micro_batch_size = 32", "micro_batch_size = 16")
    scratch = Scratch(tmp_path, re.sub(r"devices = \[.*\]", "devices = [{{step_seconds = [[16, 0.002]]}}, {{step_seconds = [[16, 0.002]]}}]", text))
    ranks = [word for slow in ([], ["env", "ONEBATCH_SLOW_READER=0.0004"])
             for word in (":", "-np", "1", *slow, faulty_onebatch.path, "train", str(scratch.config), *settings("comm.overlap=false"))]  # fmt: skip
    done = faulty_onebatch.finish(["mpirun", "--oversubscribe", "--bind-to", "none", *ranks[1:]], ONE_THREAD, 300)
    out = done.stdout + done.stderr
    assert done.returncode == 0 and re.search(r"reading took (up to )?\d+ % of the steps until \d+ on (rank 1|2 of 2 ranks): ", out), out


def test_no_workers_begin_where_reading_is_little(onebatch, tmp_path):
    scratch = Scratch(tmp_path, configuration(DIGITS_MLP, 1, 60))
    assert "data worker" not in Run(onebatch, scratch, 1, "quick").out


def test_keys_say_what_they_take(onebatch, tmp_path):
    scratch = Scratch(tmp_path)
    for change, words in (("data.workers=-1", '"auto" or a whole number from 0'), ("data.workers=5000", "to 1024"), ("data.read_ahead_mb=0", "read_ahead_mb")):
        out = onebatch.run(1, "train", scratch.config, *settings(change), code=2)
        assert words in out, out


def test_a_rank_without_samples_does_not_look_through_the_whole_run(onebatch, tmp_path):
    data = '[data]\nkind = "synthetic"\nshape = [4]\nsize = 640\nworkers = 1\n[model]\nkind = "mlp"\nhidden = [8]\n'
    scratch = Scratch(tmp_path, '[run]\nmax_steps = 20000000\noutput_dir = "{runs}"\nname = "run"\n[batch]\nglobal_batch_size = 64\nreplan = "never"\n' + data)
    shares = [{"rank": rank, "device": "any", "samples": samples, "micro_batches": [[samples, 1]] if samples else [], "predicted_seconds": 0.1, "idle_fraction": 0.0}
              for rank, samples in enumerate((64, 0))]  # fmt: skip
    (tmp_path / "plan.json").write_text(json.dumps({"global_batch_size": 64, "predicted_step_seconds": 0.1, "ranks": shares}))
    process = onebatch.start(2, "train", scratch.config, "--plan", tmp_path / "plan.json", *settings("comm.timeout_seconds=10"))
    metrics = scratch.runs / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        time.sleep(0.05)
    steps = metrics.read_text().count("\n") if metrics.exists() else 0
    process.kill()  # mpirun; its ranks follow
    assert steps >= 2, process.communicate()[0]
    process.communicate()
