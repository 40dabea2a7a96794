#!/usr/bin/env python3
"""Each of a run's file operations fails, in each way that it can: the run ends with a code that is documented and names the file, and the same
command with --resume goes on to the very weights of a run that nobody disturbed, leaving nothing that no document names.

file_operations.py PROGRAM LIBRARY [--minutes M] [--seed S] [--jobs J] [--scenario NAME]... [--fault FAULT]... [--path TEXT]... [--case K FAULT]
                   [--all [--part I/N]]

LIBRARY is libfile_operation_faults.so. Without --all, as many cases in random order as the minutes allow.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

from prestarted import Pool
from small_runs import ENVIRONMENT, TRACES, configuration

STEPS = 4
MORE = """[data.validation]
kind = "synthetic"
shape = [8]
size = 12
[checkpoint]
every_steps = 2
keep = 1
[log]
samples = true
[comm]
timeout_seconds = 4
"""
# What docs/documents.md says that a run's folder may hold.
NAMED = re.compile(r"config\.toml|metrics\.jsonl|samples\.jsonl|validation\.jsonl|(metrics|validation)\.csv|tensorboard(/events\.out\.tfevents\.\d{10}\.[\w.-]+\.\d+)?|profile\.json|plan\.json|events\.jsonl|report\.html|result\.json|checkpoints|checkpoints/latest|"
                   r"checkpoints/step-\d+(?:\.aside)?(/(model|optimizer|rank_generators|rank_buffers)\.safetensors|/state\.json|/manifest\.json)?|"
                   r"(checkpoints/)?\S+\.partial(/\S+)?|incident-[0-9TZ.]+-rank\d\.(json|txt)")  # fmt: skip
CODES = {1, 2, 3, 4, 137}  # besides 0; a request to stop is none of these faults
FAULTS = ("EIO", "kill", "ENOSPC", "short", "EINTR", "torn")
WRITES = {"write"}
READS = {"read"}
MAKES = {"create", "fsync", "close", "rename", "mkdir", "link", "truncate"}  # a full disk is seen here, too
WAITS = {"open", "create", "fsync", "close"}  # and may be interrupted by a signal
SCENARIOS = {"fresh": 1, "resume": 1, "fallback": 1, "incident": 1, "fresh, 2 ranks": 2, "resume, 2 ranks": 2, "incident, 2 ranks": 2}


class Failed(Exception):
    pass


def faults_of(operation):
    faults = ["EIO"]
    if operation != "stat":  # as it is before what comes next
        faults.append("kill")
    if operation in WRITES | MAKES:
        faults.append("ENOSPC")
    if operation in WRITES | READS:
        faults.append("short")
    if operation in WRITES | READS | WAITS:
        faults.append("EINTR")
    if operation in WRITES:
        faults.append("torn")
    return faults


class Bench:
    """A folder for runs, and how they are started in it."""

    def __init__(self, program, library, pool, folder):
        self.program, self.library, self.pool, self.folder = program, library, pool, folder
        folder.mkdir()
        self.config = folder / "c.toml"
        self.config.write_text(configuration(folder, STEPS, MORE, width=8))
        self.log = folder / "operations"
        self.runs = folder / "runs"
        self.run_folder = self.runs / "run"
        self.environment = dict(ENVIRONMENT, XDG_CACHE_HOME=str(folder / "cache"), TMPDIR=str(folder))

    def start(self, scenario, *more, fault=None):
        """The code and what was said."""
        environment = dict(self.environment)
        if fault is not None:
            environment.update(FILE_FAULT_FOLDERS=f"{self.runs}:{self.folder}/cache", FILE_FAULT_LOG=str(self.log), FILE_FAULT=fault)
            if "incident" in scenario:
                environment.update(FILE_FAULT_REQUEST="samples.jsonl", FILE_FAULT_ONLY="incident-")
        arguments = ["train", str(self.config), "--quiet", *more]
        try:
            if SCENARIOS[scenario] == 1:
                return self.pool.run(arguments, environment, self.folder / "said")
            launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(SCENARIOS[scenario])]
            done = subprocess.run([*launcher, self.program, *arguments], env=dict(environment, LD_PRELOAD=str(self.library)), capture_output=True, text=True, timeout=90, errors="replace")
            return done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as error:
            raise Failed(f"it does not end\n{error.stdout}\n{error.stderr}") from None

    def must(self, scenario, *more):
        code, said = self.start(scenario, *more)
        if code != 0:
            raise Failed(f"train {' '.join(more)}: {code}\n{said}")
        return said

    def prepare(self, scenario):
        """What there is before the run that is disturbed. Its options."""
        for name in (self.runs, self.folder / "cache"):
            shutil.rmtree(name, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        if not scenario.startswith(("resume", "fallback")):
            return []
        template = self.folder / "before" / scenario
        if not template.exists():
            self.prepare_anew(scenario)
            shutil.copytree(self.runs, template, symlinks=True)
            shutil.rmtree(self.runs)
            shutil.rmtree(self.folder / "cache", ignore_errors=True)
        shutil.copytree(template, self.runs, symlinks=True)
        return ["--resume"]

    def prepare_anew(self, scenario):
        if scenario.startswith("resume"):
            self.must(scenario, "--set", "run.max_steps=2")
        if scenario.startswith("fallback"):
            self.must(scenario, "--set", "checkpoint.keep=2")
            (self.run_folder / "result.json").unlink()
            with open(self.run_folder / "checkpoints" / f"step-{STEPS}" / "model.safetensors", "r+b") as file:
                file.truncate(100)

    def operations(self):
        """What it did with files, in order: (name, path)."""
        if not self.log.exists():
            return []
        lines = [line.split(" ", 3) for line in self.log.read_text().splitlines()]
        return [(operation, path) for _number, _time, operation, path in sorted(lines, key=lambda line: int(line[0]))]

    def weights(self):
        latest = max(self.runs.glob("run*")) / "checkpoints" / "latest"
        return (latest / "model.safetensors").read_bytes() + (latest / "optimizer.safetensors").read_bytes()


def count(bench, scenario):
    """The operations of an undisturbed run, and its weights."""
    options = bench.prepare(scenario)
    code, said = bench.start(scenario, *options, fault="0 none")
    if code != 0:
        sys.exit(f"an undisturbed run failed ({scenario}): {said}")
    return bench.operations(), bench.weights()


def check_message(said, path):
    for trace in TRACES:
        if trace in said:
            raise Failed(f"it says {trace!r}")
    named = path.removesuffix(".partial")
    if named not in said and str(pathlib.Path(named).parent) not in said:
        raise Failed(f"it does not name {named}")


def check_steps(bench, name):
    """All of them, once; but of a step that another rank has saved when rank 0 was killed, rank 0 may not have come to its line."""
    steps = [json.loads(line)["step"] for line in (bench.run_folder / name).read_text().splitlines()]
    losses = "".join(path.read_text() for path in bench.run_folder.glob("incident-*.txt"))
    saved_by_others = {int(step) for step in re.findall(r"saved step (\d+) by rank [1-9]", losses)}
    if steps != [step for step in range(1, STEPS + 1) if step in steps or step not in saved_by_others]:
        raise Failed(f"{name} has the steps {steps}")


def check_folder(bench):
    names = [str(path.relative_to(bench.run_folder)) for path in bench.run_folder.rglob("*")]
    if strange := [name for name in names if not NAMED.fullmatch(name)]:
        raise Failed(f"left in the run's folder: {strange}")
    if others := [path.name for path in (bench.folder / "runs").glob("*") if path != bench.run_folder]:
        raise Failed(f"other runs: {others}")


def check_outcome(bench, fault, code, said, path):
    if fault in ("kill", "torn"):
        if code not in (-9, 137):
            raise Failed(f"it was killed, and returned {code}")
    elif code != 0:
        if code not in CODES:
            raise Failed(f"it returned {code}")
        check_message(said, path)


def check_goes_on(bench, scenario, expected, anew):
    """With --resume, or by a new run beside what is left."""
    then = bench.must(scenario, *([] if anew else ["--resume"]))
    if ("altered" in then or "torn" in then) and not scenario.startswith("fallback"):
        raise Failed(f"a checkpoint that it said to have saved is not whole:\n{then}")
    if bench.weights() != expected:
        raise Failed("it went on to other weights")
    if not anew:
        check_folder(bench)
        check_steps(bench, "metrics.jsonl")
        check_steps(bench, "samples.jsonl")


def run_case(bench, scenario, number, fault, expected):
    """What failed (None: nothing), and the code."""
    code, said = None, ""
    try:
        options = bench.prepare(scenario)
        code, said = bench.start(scenario, *options, fault=f"{number} {fault}")
        done = bench.operations()
        if len(done) < number:
            return None, "not reached"
        operation, path = done[number - 1]
        # Threads take turns otherwise in every run: what was a write may now be something that cannot be torn.
        if fault == "torn" and operation not in WRITES:
            return None, "another operation"
        check_outcome(bench, fault, code, said, path)
        if fault in ("short", "EINTR") and operation in WRITES | READS and code != 0:
            raise Failed(f"{operation}: {fault} is no failure, and it returned {code}")
        check_goes_on(bench, scenario, expected, anew=number % 5 == 0)
        return None, code
    except (Failed, OSError, ValueError) as failure:
        return f"{failure}\n{said[-2500:]}", code


def cases_of(bench, scenario):
    operations, weights = count(bench, scenario)
    kinds = collections.Counter(operation for operation, _ in operations)
    print(f"{scenario}: {len(operations)} file operations: {', '.join(f'{n} {kind}' for kind, n in kinds.most_common())}", flush=True)
    return [(scenario, number, fault, operation, path, weights) for number, (operation, path) in enumerate(operations, 1) for fault in faults_of(operation)]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program", type=pathlib.Path)
    options.add_argument("library", type=pathlib.Path)
    options.add_argument("--minutes", type=float, default=1.5)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--scenario", choices=SCENARIOS, action="append")
    options.add_argument("--fault", choices=FAULTS, action="append")
    options.add_argument("--path", metavar="TEXT", action="append", help="of files that have this in their path alone")
    options.add_argument("--case", nargs=2, metavar=("K", "FAULT"))
    options.add_argument("--all", action="store_true")
    options.add_argument("--part", help="I/N: of N parts of all cases the I-th, from 1")
    given = options.parse_args()
    program, library = given.program.resolve(), given.library.resolve()
    pool = Pool(given.jobs, program, library, ENVIRONMENT)
    with tempfile.TemporaryDirectory(prefix="onebatch-files-") as folder:
        benches = queue.SimpleQueue()
        for number in range(given.jobs):
            benches.put(Bench(program, library, pool, pathlib.Path(folder) / str(number)))
        failed = run_cases(given, benches)
    pool.close()
    return failed


def run_cases(given, benches):
    begin = time.time()
    bench = benches.get()
    cases = [case for scenario in given.scenario or SCENARIOS for case in cases_of(bench, scenario)]
    benches.put(bench)
    random.Random(given.seed).shuffle(cases)
    if given.fault:
        cases = [case for case in cases if case[2] in given.fault]
    if given.path:
        cases = [case for case in cases if any(text in case[4] for text in given.path)]
    if given.part:
        part, parts = map(int, given.part.split("/"))
        cases = cases[part - 1 :: parts]
    if given.case:
        cases = [case for case in cases if (str(case[1]), case[2]) == tuple(given.case)]
    codes, failed, done = collections.Counter(), 0, 0

    def one(case):
        scenario, number, fault, _operation, _path, weights = case
        if not given.all and not given.case and time.time() > begin + given.minutes * 60:
            return None
        bench = benches.get()
        try:
            return (case, *run_case(bench, scenario, number, fault, weights))
        finally:
            benches.put(bench)

    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        for result in pool.map(one, cases):
            if result is None:
                continue
            (scenario, number, fault, operation, path, _), failure, code = result
            done += 1
            codes[(fault, code)] += 1
            if failure:
                failed += 1
                print(f"FAILED --scenario {scenario!r} --case {number} {fault}: {operation} {path.split('/', 3)[-1]}: {failure}", flush=True)
    print("  " + ", ".join(f"{fault} {code}: {count}" for (fault, code), count in sorted(codes.items(), key=str)))
    print(f"{done - failed} of {done} failing file operations ended as they should and went on to the same weights; there are {len(cases)}")
    return 1 if failed or done == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
