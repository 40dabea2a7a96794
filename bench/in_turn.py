"""Processes that train beside each other, of which one at a time runs, each for a fifth of a second or some steps, whichever is longer: what else a shared machine does meets all of them alike."""
import atexit
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

WARM = 10  # steps
TURN = 0.2, 4  # seconds, and steps of the slowest: a turn lasts as long as the longer of both
LEAST_TURNS = 6


def descendants(process):
    """It and the processes that it has started, and theirs."""
    found = [process]
    for one in found:
        for children in pathlib.Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:
                continue  # the thread has ended meanwhile
    return found


def send(number, processes):
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


class Side:
    """A command that trains without an end and writes a line for each step into `file`, which is its own output where `is_output`: `read` makes of a line when the step ended and how many
    seconds it took. When this is made the command has done WARM steps, and stands still."""

    def __init__(self, command, file, read, is_output=False, **more):
        self.file, self.read, self.turns = file, read, []
        self.errors = tempfile.TemporaryFile("w+")
        with open(file if is_output else os.devnull, "w") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=self.errors, **more)
        atexit.register(self.kill)
        while len(self.steps()) < WARM:
            self.refuse_end()
            time.sleep(0.05)
        send(signal.SIGSTOP, descendants(self.process.pid))

    def steps(self):
        text = self.file.read_text() if self.file.exists() else ""
        return [self.read(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def refuse_end(self):
        if self.process.poll() is not None:
            self.errors.seek(0)
            sys.exit(f"{self.process.args} ended too early: {self.errors.read()}")

    def run_for(self, seconds):
        """Lets it run so long."""
        begin = time.time()
        send(signal.SIGCONT, descendants(self.process.pid))
        time.sleep(seconds)
        self.turns.append((begin, time.time()))
        send(signal.SIGSTOP, descendants(self.process.pid))
        self.refuse_end()

    def kill(self):
        """A launcher outlives what it has started, and tidies up."""
        if self.process.poll() is not None:
            return
        launcher, *started = descendants(self.process.pid)
        send(signal.SIGKILL, started or [launcher])
        send(signal.SIGCONT, [launcher])
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def end(self):
        """The median seconds of those steps that began and ended in one turn."""
        self.kill()
        # One that a stop has cut is longer by all the others' turns: it lies in none, however coarse the clocks are.
        whole = [seconds for end, seconds in self.steps() if any(begin <= end - seconds and end <= stop for begin, stop in self.turns)]
        if not whole:
            sys.exit(f"{self.process.args}: no step lay within a turn: give more --seconds")
        return statistics.median(whole)


def of_run(command, run_folder, **more):
    """An `onebatch train` without an end, whose run lies in run_folder."""

    def read(line):
        row = json.loads(line)
        return row["time"], row["step_seconds"]

    return Side(command, run_folder / "metrics.jsonl", read, **more)


def in_turn(sides, seconds):
    """Lets them take turns until each has run for about so many seconds, and for LEAST_TURNS turns, and ends them: for each the median seconds of a step."""
    least, steps = TURN
    turn = max(least, steps * max(statistics.median(took for _, took in side.steps()) for side in sides))
    for number in range(max(LEAST_TURNS, round(seconds / turn))):
        for side in sides if number % 2 == 0 else reversed(sides):
            side.run_for(turn)
    return [side.end() for side in sides]
