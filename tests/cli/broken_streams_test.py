"""What people are told cannot be written: the run goes on to the weights of an undisturbed one, and the loss is said once where it can be."""
import fcntl
import os
import subprocess
import time

import pytest

from program import Scratch, read_json, settings

SETTINGS = settings('run.deterministic="bitwise"', "batch.micro_batch_size=20", "run.max_steps=8", "log.every_steps=1", "simulate.devices=[{slowdown = 1.0}, {slowdown = 2.0}]")
NOTE = "what it cannot take is lost"
COMPLAINING = {"XDG_CACHE_HOME": "/proc/nowhere"}  # probes that cannot be kept are warned of on standard error
# How often the loss is said on what is left of standard output and of standard error.
ALONE = {"2>/dev/full": (1, 0), "2>&-": (1, 0), ">/dev/full": (0, 1), ">&-": (0, 1), ">/dev/full 2>&1": (0, 0), "<&- >&- 2>&-": (0, 0)}


def train_in_shell(program, scratch, ranks, redirection):
    """In a shell, which can close a stream; returns what is left to read."""
    command = program.command_line(ranks, "train", scratch.config, *SETTINGS)
    done = program.finish(["bash", "-c", 'exec "$@" ' + redirection, "bash", *command], COMPLAINING)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def weights(scratch):
    return (scratch.runs / "run" / "checkpoints" / "latest" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(onebatch, tmp_path_factory):
    """The weights of an undisturbed run."""
    made = Scratch(tmp_path_factory.mktemp("whole"))
    out, error = train_in_shell(onebatch, made, 1, "")
    assert NOTE not in out + error
    assert "probe.cache" in error
    assert "step 8/8" in out
    return weights(made)


@pytest.mark.parametrize("redirection", ALONE)
def test_a_stream_that_cannot_be_written_costs_its_words_alone(onebatch, scratch, whole, redirection):
    out, error = train_in_shell(onebatch, scratch, 1, redirection)
    assert (out.count(NOTE), error.count(NOTE)) == ALONE[redirection], "the loss is said once"
    assert weights(scratch) == whole
    assert ("done: 8 steps" in out) == (ALONE[redirection][0] == 1), "what can be written is"
    # Nothing of a closed stream's goes into the files of the run.
    for file in sorted((scratch.runs / "run").rglob("*.json")):
        read_json(file)


@pytest.mark.parametrize("broken", (("stdout",), ("stderr",), ("stdout", "stderr")))
def test_a_reader_that_has_gone_costs_its_words_alone(onebatch, scratch, whole, broken):
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **{stream: writer for stream in broken}}
    process = onebatch.start(1, "train", scratch.config, *SETTINGS, environment=COMPLAINING, **streams)
    os.close(writer)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, f"{out}{error}"
    assert ((out or "") + (error or "")).count(NOTE) == (1 if len(broken) == 1 else 0)
    assert weights(scratch) == whole


@pytest.mark.parametrize("redirection", ("2>/dev/full", "2>&-", ">/dev/full"))
def test_under_mpirun_each_rank_goes_on(onebatch, scratch, whole, redirection):
    train_in_shell(onebatch, scratch, 2, redirection)
    assert weights(scratch) == whole


def test_a_document_that_was_asked_for_and_has_no_place_is_refused(onebatch, scratch):
    done = onebatch.finish(onebatch.command_line(1, "train", scratch.config, *SETTINGS, "--json", scratch.path / "nowhere" / "result.json"), COMPLAINING)
    assert done.returncode == 2
    assert "nowhere/result.json" in done.stderr


def test_text_that_was_asked_for_and_no_run_is_lost_with_a_word(onebatch):
    done = onebatch.finish(["bash", "-c", f"{onebatch.path} --help >/dev/full"], COMPLAINING)
    assert done.returncode == 0
    assert done.stderr.count(NOTE) == 1


@pytest.mark.parametrize("ranks", (1, 2))
def test_a_reader_that_pauses_for_longer_than_the_deadline_holds_the_run_up(onebatch, scratch, ranks):
    """As a pager does, or a terminal that was stopped."""
    process = onebatch.start(ranks, "train", scratch.config, *settings("run.epochs=30", "log.every_steps=1", "comm.timeout_seconds=1.5"))
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
    time.sleep(7)
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 0, said
    assert "done: " in said
