"""What a person sees while it runs: the first line at once, never long silence, one live line that fits its terminal, and nothing of a terminal's
in what is no terminal."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import pytest

from program import ROOT, Scratch, settings

MOST_SECONDS_TO_THE_FIRST_LINE = 1.0
MOST_SILENT_SECONDS = 5.0
SLOW_STEP = settings("run.max_steps=3", "batch.replan=\"never\"", "simulate.devices=[{step_seconds = [[1, 0.01], [257, 0.1]], changes = [{step = 2, slowdown = 65.0}, {step = 3, slowdown = 1.0}]}]")


class Watched:
    """What came when: [(seconds since the start, text)]."""

    def __init__(self, command, environment, columns=None, seconds=120):
        self.pieces = []
        begin = time.monotonic()
        if columns is None:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            source = process.stdout.fileno()
        else:
            source, end = pty.openpty()
            fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=end, stdout=end, stderr=end, start_new_session=True)
            os.close(end)
        while time.monotonic() - begin < seconds:
            if not select.select([source], [], [], 1.0)[0]:
                continue
            try:
                piece = os.read(source, 65536)
            except OSError:  # a terminal whose other end is closed
                piece = b""
            if not piece:
                break
            self.pieces.append((time.monotonic() - begin, piece.decode(errors="replace")))
        self.code = process.wait(timeout=seconds)
        self.seconds = time.monotonic() - begin

    @property
    def text(self):
        return "".join(text for _, text in self.pieces)

    @property
    def first(self):
        return self.pieces[0][0]

    @property
    def longest_silence(self):
        times = [0.0, *(moment for moment, _ in self.pieces), self.seconds]
        return max(later - sooner for sooner, later in zip(times, times[1:]))


def watch(program, ranks, *arguments, columns=None, environment=None, seconds=120):
    more = {"TERM": "xterm", "NO_COLOR": None, **(environment or {})}
    watched = Watched(program.command_line(ranks, *arguments), program.environment_with(more), columns, seconds)
    assert watched.code == 0, watched.text
    return watched


def drawn_lines(text):
    """Each state of the live line: what is printed in its place is followed by a line's end, and it by its own erasure."""
    return [line for line in re.findall(r"\r\x1b\[K([^\r\n]*)(?=\r\x1b|$)", text) if line]


def on_screen(text):
    """The lines that are left in the end: a carriage return and an erasure take back what stood in a line."""
    lines = [""]
    for part in re.split(r"(\r\n|\n|\r\x1b\[K|\r)", text):
        if part in ("\r\n", "\n"):
            lines.append("")
        elif part == "\r\x1b[K":
            lines[-1] = ""
        elif part != "\r":
            lines[-1] += part
    return lines


@pytest.mark.parametrize("ranks", (1, 2))
def test_the_first_line_comes_at_once(onebatch, scratch, ranks):
    watched = watch(onebatch, ranks, "train", scratch.config, *settings("run.max_steps=2"))
    assert re.match(rf"onebatch \d+\.\d+\.\d+: train {re.escape(str(scratch.config))}\r?\n", watched.text)
    assert watched.text.count(": train ") == 1, "one rank speaks"
    print(f"{ranks} rank(s): the first line after {watched.first:.2f} s")
    assert watched.first < MOST_SECONDS_TO_THE_FIRST_LINE * slack()


def slack():
    """Of a machine that does other things at the same time."""
    return max(1.0, os.getloadavg()[0] / os.cpu_count())


@pytest.mark.parametrize("columns", (None, 100))
def test_a_slow_step_is_no_silence(onebatch, scratch, columns):
    """One that takes 6.5 seconds, of which nothing is to be said before its end."""
    watched = watch(onebatch, 1, "train", scratch.config, *SLOW_STEP, columns=columns)
    print(f"the longest silence was {watched.longest_silence:.2f} s")
    assert watched.longest_silence < MOST_SILENT_SECONDS * slack()
    assert re.search(r"\d+ s: micro-batches of step \d for \d+ s", watched.text)


MUCH_TO_VALIDATE = """
[run]
output_dir = "{runs}"
name = "run"
max_steps = 1
[batch]
global_batch_size = 8
micro_batch_size = 8
[data]
kind = "synthetic"
shape = [3, 32, 32]
num_classes = 10
size = 64
[data.validation]
size = 12000
[model]
kind = "resnet"
depth = 20
stem = "cifar"
"""


def test_validation_says_how_far_it_is(onebatch, tmp_path):
    scratch = Scratch(tmp_path, MUCH_TO_VALIDATE)
    watched = watch(onebatch, 1, "train", scratch.config, columns=100)
    percents = [int(found) for found in re.findall(r"validation after step 1, (\d+) % done", watched.text)]
    assert len(set(percents)) > 1, watched.text[-2000:]
    assert percents == sorted(percents)


def test_quiet_is_quiet(onebatch, scratch):
    watched = watch(onebatch, 1, "train", scratch.config, *settings("run.max_steps=2"), "--quiet")
    assert watched.text.startswith("done: 2 steps")


@pytest.mark.parametrize("ranks", (1, 2))
@pytest.mark.parametrize("columns", (40, 80, 200))
def test_the_live_line_fits(onebatch, scratch, columns, ranks):
    watched = watch(onebatch, ranks, "train", scratch.config, *settings("run.epochs=40"), columns=columns)
    drawn = drawn_lines(watched.text)
    steps = [line for line in drawn if "step " in line and "loss" in line]
    assert steps, watched.text
    assert max(map(len, drawn)) < columns
    assert any(("#" in line) == (columns == 200) for line in steps)
    assert all(re.search(r"step \d+/240", line) for line in steps)
    if columns == 200:
        assert re.search(r"loss \d\.\d{4}  \d+ samples/s  mem \d+ (%|MiB)  val \d\.\d{4} \d+\.\d\d %  \d+:\d\d left", "\n".join(steps))
    if columns == 40:
        assert any(re.search(r"loss \d\.\d{4}  \d+:\d\d left$", line) for line in steps)
    last = [line for line in on_screen(watched.text) if line]
    assert not any("left" in line for line in last), "the live line is gone in the end"
    assert any(line.startswith("validation after epoch 40") for line in last)


def test_a_window_that_was_made_wider_is_used(onebatch, scratch):
    source, end = pty.openpty()
    resize = lambda columns: fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))  # noqa: E731
    resize(40)
    devices = "simulate.devices=[{step_seconds = [[1, 0.0002], [257, 0.06]]}]"
    command = onebatch.command_line(1, "train", scratch.config, *settings("run.epochs=8", devices))
    process = subprocess.Popen(command, cwd=ROOT, env=onebatch.environment_with({"TERM": "xterm"}), stdin=end, stdout=end, stderr=end)
    text, widest, deadline = "", 0, time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if select.select([source], [], [], 0.2)[0]:
            text += os.read(source, 65536).decode(errors="replace")
        if widest == 0 and "left" in "".join(drawn_lines(text)):
            widest = max(map(len, drawn_lines(text)))
            resize(150)
    os.close(end)
    assert process.wait(timeout=60) == 0
    assert 0 < widest < 40
    assert max(map(len, drawn_lines(text))) >= 80


@pytest.mark.parametrize("ranks", (1, 2))
def test_what_is_no_terminal_gets_plain_lines(onebatch, scratch, ranks):
    watched = watch(onebatch, ranks, "train", scratch.config, *settings("run.max_steps=20", "log.every_steps=5"))
    assert "\x1b" not in watched.text
    assert "\r" not in watched.text.replace("\r\n", "\n")
    assert [int(step) for step in re.findall(r"^step (\d+)/20", watched.text, re.M)] == [5, 10, 15, 20]


def test_log_files_have_neither_colour_nor_a_live_line(onebatch, scratch):
    watch(onebatch, 1, "train", scratch.config, *settings("run.max_steps=20"), "--log-dir", scratch.path / "logs", columns=80)
    text = (scratch.path / "logs" / "rank-0.log").read_text()
    assert "\x1b" not in text
    assert "####" not in text
    assert re.search(r"^\S+Z step 20/20", text, re.M)
    assert re.search(r"^\S+Z onebatch \d\S+: train ", text, re.M)


COMPLAINING = {"XDG_CACHE_HOME": "/proc/nowhere"}  # probes that cannot be kept are warned of


@pytest.mark.parametrize("changes, colours", (({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)))
def test_colour_marks_warnings_on_a_terminal_that_may_have_it(onebatch, scratch, changes, colours):
    watched = watch(onebatch, 1, "train", scratch.config, *settings("run.max_steps=2"), columns=80, environment={**COMPLAINING, **changes})
    assert ("\x1b[33monebatch: warning:\x1b[0m asked for probe.cache" in watched.text) == colours
    assert "onebatch: warning:" in watched.text
    if changes.get("TERM") == "dumb":
        assert "\x1b" not in watched.text


PLACES = (("--json", "nowhere/result.json", "there is no folder"), ("--json", ".", "is a folder: write the name of a file in it"), ("--timeline", "nowhere/trace.json", "there is no folder"))


@pytest.mark.parametrize("ranks", (1, 2))
@pytest.mark.parametrize("option, place, words", PLACES)
def test_files_that_cannot_be_written_are_refused_before_anything_begins(onebatch, scratch, option, place, words, ranks):
    watched = Watched(onebatch.command_line(ranks, "train", scratch.config, option, scratch.path / place), onebatch.environment)
    assert watched.code == 2
    said = [moment for moment, text in watched.pieces if f"{option} {scratch.path / place}" in text and words in text]
    assert said, watched.text
    print(f"refused after {said[0]:.2f} s")
    assert said[0] < MOST_SECONDS_TO_THE_FIRST_LINE * slack()
    assert not scratch.runs.exists()


def test_trying_a_file_leaves_nothing_and_overwrites_nothing(onebatch, scratch):
    result = scratch.path / "result.json"
    result.write_text("from before")
    onebatch.run(1, "train", scratch.config, "--json", result, "--set", "data.path=/nowhere", code=2)
    assert result.read_text() == "from before"
    assert sorted(path.name for path in scratch.path.iterdir() if path.name != "runs") == ["result.json", "run.toml"]
