"""Processes that train beside each other, of which only one runs at a time, each for a few steps in turn: what else a shared machine does meets all of them alike."""
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
TURN = 0.2, 8  # seconds, and steps: a turn is of both at least


def descendants(process):
    """It and the processes that it has started, and theirs."""
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
        except OSError:
            continue  # it has ended meanwhile
    found = [process]
    for one in found:
        found += parents.get(one, [])
    return found


class Side:
    """A command that writes a line for each step into `file`, its own output or metrics.jsonl of its run: `read` makes of it when the step ended and how many seconds it took.
    It is stopped as soon as it is warm."""

    def __init__(self, command, file, read, **more):
        self.file, self.read, self.turns = file, read, []
        self.errors = tempfile.TemporaryFile("w+")
        with open(os.devnull if file.name == "metrics.jsonl" else file, "w") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=self.errors, **more)
        while len(self.steps()) < WARM:
            self.refuse_end()
            time.sleep(0.05)
        self.members = descendants(self.process.pid)
        self.signal(signal.SIGSTOP)

    def steps(self):
        text = self.file.read_text() if self.file.exists() else ""
        return [self.read(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def signal(self, number):
        for member in self.members:
            try:
                os.kill(member, number)
            except ProcessLookupError:
                pass

    def refuse_end(self):
        if self.process.poll() is not None:
            self.errors.seek(0)
            sys.exit(f"{self.process.args} ended too early: {self.errors.read()}")

    def run_for(self, seconds):
        begin = time.time()
        self.signal(signal.SIGCONT)
        time.sleep(seconds)
        self.turns.append((begin, time.time()))
        self.signal(signal.SIGSTOP)
        self.refuse_end()

    def end(self):
        """The median seconds of those steps that began and ended in one turn."""
        self.signal(signal.SIGKILL)
        self.process.wait()
        return statistics.median(seconds for end, seconds in self.steps() if any(begin <= end - seconds and end <= stop for begin, stop in self.turns))


def of_run(command, run_folder, **more):
    """An `onebatch train` without an end, whose run lies in run_folder."""

    def read(line):
        row = json.loads(line)
        return row["time"], row["step_seconds"]

    return Side(command, run_folder / "metrics.jsonl", read, **more)


def in_turn(sides, seconds):
    """Runs each for so many seconds and ends them: their median seconds of a step."""
    least, steps = TURN
    turn = max(least, steps * max(statistics.median(took for _, took in side.steps()) for side in sides))
    for _ in range(max(1, round(seconds / turn))):
        for side in sides:
            side.run_for(turn)
    return [side.end() for side in sides]
