"""--log-dir: a file for each rank with all that it said, and what libraries wrote; an older one is added to; one that cannot be had is said before anything begins."""
import json
import re
import signal
import subprocess
import time

import pytest

from program import Scratch, settings

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z .+")
FOUR_STEPS = settings("run.max_steps=4", "log.every_steps=2")


def lines_of(file):
    lines = file.read_text().splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == [], f"{file.name}: each line has its time"
    return [line.split(" ", 1)[1] for line in lines]


class Logged:
    """A run on two ranks, and what it has shown and logged."""

    def __init__(self, program, path):
        self.scratch = Scratch(path)
        self.logs = path / "some" / "logs"
        self.shown = [line for line in program.run(2, "train", self.scratch.config, *FOUR_STEPS, "--log-dir", self.logs).splitlines() if line]
        self.names = sorted(file.name for file in self.logs.iterdir())
        self.lines = [lines_of(self.logs / f"rank-{rank}.log") for rank in (0, 1)]


@pytest.fixture(scope="module")
def logged(onebatch, tmp_path_factory):
    return Logged(onebatch, tmp_path_factory.mktemp("logged"))


def test_there_is_a_file_for_each_rank(logged):
    assert logged.names == ["rank-0.log", "rank-1.log"]


@pytest.mark.parametrize("rank", (0, 1))
def test_it_begins_with_who_it_is_and_what_was_typed_and_ends_with_how_it_ended(logged, rank):
    lines = logged.lines[rank]
    assert re.fullmatch(rf"rank {rank} of 2 on \S+, process \d+: .*onebatch train .*--log-dir .*", lines[0])
    assert re.fullmatch(r"ended with exit code 0 after \d+\.\d s", lines[-1])


def test_what_the_terminal_shows_is_in_the_file(logged):
    assert sorted(logged.lines[0][1:-1]) == sorted(logged.shown)
    assert any(line.startswith("step 4/4") for line in logged.lines[0])


def test_a_second_run_is_added_and_quiet_keeps_nothing_from_the_file(onebatch, logged):
    file = logged.logs / "rank-0.log"
    before = lines_of(file)
    out = onebatch.run(1, "train", logged.scratch.config, "--quiet", *FOUR_STEPS, "--log-dir", logged.logs)
    assert "step 2/4" not in out
    both = lines_of(file)
    assert both[: len(before)] == before
    assert any(line.startswith("step 2/4") for line in both[len(before) :])


def test_a_mistakes_words_and_code_are_kept(onebatch, scratch):
    onebatch.run(1, "train", scratch.config, *settings("optimizer.lrr=1"), "--log-dir", scratch.path / "logs", code=2)
    lines = lines_of(scratch.path / "logs" / "rank-0.log")
    assert lines[-1].startswith("ended with exit code 2")
    assert any("optimizer.lrr" in line for line in lines[-5:])


def test_a_crashs_words_are_kept(onebatch, scratch):
    log = scratch.path / "crashed" / "rank-0.log"
    process = onebatch.start(1, "train", scratch.config, *settings("run.max_steps=100000"), "--log-dir", log.parent, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (log.exists() and "step 10/" in log.read_text()):
        assert time.monotonic() < deadline, "there was no step 10"
        time.sleep(0.05)
    process.send_signal(signal.SIGABRT)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGABRT
    assert "what it did, and where its threads were, is in" in log.read_text()


def test_a_document_for_standard_output_is_not_logged(onebatch, scratch):
    done = onebatch.finish(onebatch.command_line(1, "info", "--json", "/dev/stdout", "--log-dir", scratch.path / "logs"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout[done.stdout.index("{") :])
    assert "{" not in (scratch.path / "logs" / "rank-0.log").read_text()


def test_a_folder_that_cannot_be_had_is_said_before_anything_begins(onebatch, scratch):
    (scratch.path / "file").write_text("")
    out = onebatch.run(1, "train", scratch.config, "--log-dir", scratch.path / "file", code=2)
    assert "--log-dir" in out
    assert "name a folder that can be written" in out
