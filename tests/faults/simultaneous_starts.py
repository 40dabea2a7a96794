#!/usr/bin/env python3
"""Two to five starts of one run's name at once, some with --resume: each run's folder has one writer at a time and ends as a run that was alone;
who may not go on is told by whom it is held.

simultaneous_starts.py PROGRAM LIBRARY [--rounds N] [--minutes M] [--seed S] [--round I]

LIBRARY is libfile_operation_faults.so: it loads the program beforehand, so that starts really meet, and tells who wrote what.
"""
import argparse
import collections
import json
import pathlib
import random
import re
import shutil
import signal
import socket
import sys
import tempfile
import time

from prestarted import Prestarted
from small_runs import ENVIRONMENT, TRACES, configuration

MOST = 5
STEPS = 30
MORE = """[checkpoint]
every_steps = 10
keep = 1
"""
CHANGES = {"create", "write", "rename", "truncate", "link", "remove", "mkdir"}


class Failed(Exception):
    pass


class Bench:
    def __init__(self, program, library, folder):
        self.folder, self.runs = folder, folder / "runs"
        self.config = folder / "c.toml"
        self.config.write_text(configuration(folder, STEPS, MORE))
        self.starters = [Prestarted(program, library, ENVIRONMENT) for _ in range(MOST)]
        self.prepare()

    def environment(self, number):
        return dict(ENVIRONMENT, XDG_CACHE_HOME=str(self.folder / "cache"), TMPDIR=str(self.folder), FILE_FAULT_FOLDERS=str(self.runs), FILE_FAULT_LOG=str(self.folder / f"operations-{number}"))

    def begin(self, number, *more, **environment):
        (self.folder / f"operations-{number}").unlink(missing_ok=True)
        return self.starters[number].begin(["train", self.config, *more], dict(self.environment(number), **environment), self.folder / f"said-{number}")

    def said(self, number):
        return (self.folder / f"said-{number}").read_text(errors="replace")

    def alone(self, expected, **environment):
        self.begin(0, **environment)
        code = self.starters[0].end()
        if code != expected:
            sys.exit(f"a run that was alone ended with {code}: {self.said(0)}")

    def prepare(self):
        """A run that was killed and one that is complete, to begin with; and the weights of the latter."""
        self.alone(-signal.SIGKILL, FILE_FAULT_ONLY=f"step-{STEPS - 10}", FILE_FAULT="1 kill")
        self.runs.rename(self.folder / "stopped")
        self.alone(0)
        self.runs.rename(self.folder / "complete")
        (self.folder / "nothing").mkdir()
        self.wanted = weights(self.folder / "complete" / "run")

    def changes(self, number):
        """What a start changed in which run's folder: (seconds, folder, path)."""
        log = self.folder / f"operations-{number}"
        found = []
        for line in log.read_text().splitlines() if log.exists() else []:
            _, seconds, operation, path = line.split(" ", 3)
            parts = pathlib.Path(path).relative_to(self.runs).parts
            if operation in CHANGES and len(parts) > 1 and parts[1] != "run.lock":
                found.append((float(seconds), parts[0], path))
        return found


def weights(run):
    return (run / "checkpoints" / "latest" / "model.safetensors").read_bytes()


def check_said(code, said, resumed, processes):
    for trace in TRACES:
        if trace in said:
            raise Failed(f"it says {trace!r}")
    if code == 0:
        return "ran"
    if code != 2 or not resumed:
        raise Failed(f"{'with' if resumed else 'without'} --resume it returned {code}")
    holder = re.search(r"is in use: (process (\d+) on (\S+), since|a process that has just started)", said)
    if not holder:
        raise Failed("it does not say who holds the run")
    if holder[2] and (int(holder[2]) not in processes or holder[3] != socket.gethostname()):
        raise Failed(f"process {holder[2]} on {holder[3]} is none of those that were started: {processes}")
    return "refused"


def check_writers(bench, count):
    """In one folder nobody writes between the first and the last thing that another writes."""
    spans = collections.defaultdict(list)
    for number in range(count):
        moments = collections.defaultdict(list)
        for seconds, folder, _ in bench.changes(number):
            moments[folder].append(seconds)
        for folder, times in moments.items():
            spans[folder].append((min(times), max(times), number))
    for folder, of_starts in spans.items():
        of_starts.sort()
        for (_, end, one), (begin, _, other) in zip(of_starts, of_starts[1:]):
            if begin <= end:
                raise Failed(f"starts {one} and {other} both wrote to {folder} at once")


def check_runs(bench):
    for run in bench.runs.iterdir():
        if not re.fullmatch(r"run(-\d+)?", run.name):
            raise Failed(f"{run.name} is left")
        steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        if steps != list(range(1, STEPS + 1)):
            raise Failed(f"{run.name}/metrics.jsonl has the steps {steps}")
        if weights(run) != bench.wanted:
            raise Failed(f"{run.name} has other weights")
        if (run / "run.lock").exists() or not (run / "result.json").exists():
            raise Failed(f"{run.name} is not complete: {sorted(path.name for path in run.iterdir())}")


def run_round(bench, rng):
    """How its starts ended."""
    before = rng.choice(("nothing", "nothing", "stopped", "stopped", "complete"))
    shutil.rmtree(bench.runs, ignore_errors=True)
    shutil.copytree(bench.folder / before, bench.runs, symlinks=True)
    starts = [rng.random() < 0.6 for _ in range(rng.randint(2, MOST))]
    width = rng.choice((0.0, 0.01, 0.1, 0.5))
    name = f"{len(starts)} starts beside {before}, within {width} s, with --resume: {starts}"
    processes = []
    for number, resumed in enumerate(starts):
        processes.append(bench.begin(number, *(["--resume"] if resumed else [])))
        time.sleep(rng.uniform(0, width / len(starts)))
    codes = [bench.starters[number].end() for number in range(len(starts))]
    ends = []
    try:
        for number, (code, resumed) in enumerate(zip(codes, starts)):
            ends.append(check_said(code, bench.said(number), resumed, processes))
        check_writers(bench, len(starts))
        if before != "stopped" or any(end == "ran" and resumed for end, resumed in zip(ends, starts)):
            check_runs(bench)
        elif any(starts):
            raise Failed("nobody went on with the run that was there")
    except (Failed, OSError, ValueError) as failure:
        said = "".join(f"--- {number}: {code}\n{bench.said(number)[-1500:]}" for number, code in enumerate(codes))
        raise Failed(f"{name}: {failure}\n{said}") from None
    return ends


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program", type=pathlib.Path)
    options.add_argument("library", type=pathlib.Path)
    options.add_argument("--rounds", type=int, default=200)
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--round", type=int)
    given = options.parse_args()
    ends, failed, done, until = collections.Counter(), 0, 0, time.time() + given.minutes * 60
    with tempfile.TemporaryDirectory(prefix="onebatch-starts-") as folder:
        bench = Bench(given.program.resolve(), given.library.resolve(), pathlib.Path(folder))
        for number in [given.round] if given.round is not None else range(given.rounds):
            if time.time() > until:
                break
            done += 1
            try:
                ends.update(run_round(bench, random.Random(given.seed * 100003 + number)))
            except Failed as failure:
                failed += 1
                print(f"FAILED --seed {given.seed} --round {number}: {failure}", flush=True)
        for starter in bench.starters:
            starter.close()
    print(f"{done - failed} of {done} rounds of simultaneous starts ended as they should: {', '.join(f'{count} {end}' for end, count in ends.items())}")
    return 1 if failed or done == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
