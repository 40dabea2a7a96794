#!/usr/bin/env python3
"""One rank fails, in every way and at every point: the others end in time, with their own code, and the first message names the guilty one.

faults_test.py PROGRAM         checks every case, and that the table in docs/faults.md is the one found here
faults_test.py PROGRAM --write writes that table
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "faults.md"
PROGRAM = pathlib.Path(sys.argv[1]).resolve()
TIMEOUT = 2.0          # comm.timeout_seconds
ALLOWED = 5.0          # beyond it
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1")
# Keeps each rank's own code, where the launcher lets it come to one.
WRAPPER = '"$@"; code=$?; echo $code > "$CODES/.$OMPI_COMM_WORLD_RANK"; mv "$CODES/.$OMPI_COMM_WORLD_RANK" "$CODES/$OMPI_COMM_WORLD_RANK"; exit $code'
CONFIG = """
[run]
max_steps = 6
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = 48
micro_batch_size = {micro_batch}
gradient_accumulation_steps = 1
[data]
kind = "idx"
path = "data"
[model]
kind = "mlp"
hidden = [400, 300]
[checkpoint]
every_steps = 2
keep = 10
[probe]
cache = false
max_val = 32
steps_per_trial = 1
[comm]
timeout_seconds = {timeout}
"""
PHASES = {"start-up": ("start", 0), "the probe": ("probe", 2), "a step": ("step", 3), "a checkpoint": ("checkpoint", 4)}


class Case:
    def __init__(self, what, where, ranks, kind="", place="", number=0, guilty=None):
        self.what, self.where, self.ranks, self.kind, self.place, self.number = what, where, ranks, kind, place, number
        self.guilty = ranks - 1 if guilty is None else guilty

    def name(self):
        return f"{self.what} in {self.where}, {self.ranks} ranks"


def all_cases():
    for ranks in (2, 3, 4):
        for where, (place, number) in PHASES.items():
            yield Case("killed", where, ranks, "kill", place, number)
            yield Case("stopped (SIGSTOP)", where, ranks, "stop", place, number)
        yield Case("exception in opening the data", "start-up", ranks, "throw", "start", 0)
        yield Case("exception in a trial", "the probe", ranks, "throw", "probe", 2)
        yield Case("exception in the loader", "a step", ranks, "throw", "loader", 3)
        yield Case("exception in the model", "a step", ranks, "throw", "model", 3)
        yield Case("exception in writing", "a checkpoint", ranks, "throw", "checkpoint", 4)
        yield Case("exception in writing beside the steps", "a checkpoint", ranks, "throw", "write", 4, guilty=0)
        yield Case("killed while writing beside the steps", "a checkpoint", ranks, "kill", "write", 4, guilty=0)
        yield Case("disk full", "a checkpoint", ranks, "disk", guilty=0)
        yield Case("parameter shapes differ", "start-up", ranks, "shapes")
        yield Case("configurations differ", "start-up", ranks, "configuration")
        yield Case("a rank one step ahead", "a step", ranks, "ahead", "step", 3)


def idx(folder, width):
    """Data of 4 x width pixels: enough for a model to be trained."""
    folder.mkdir(parents=True)
    for part, count in (("train", 256), ("t10k", 64)):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (count, 4, width)) + bytes(range(256)) * (count * 4 * width // 256))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1]) + count.to_bytes(4, "big") + bytes(i % 10 for i in range(count)))


def contexts(case, folder):
    """The launcher's words: one context for all ranks, or another for the guilty one."""
    program = ["sh", "-c", WRAPPER, "sh", str(PROGRAM), "train", str(folder / "c.toml"), "--quiet"]
    if case.kind not in ("shapes", "configuration"):
        return ["-np", str(case.ranks), "-wdir", str(folder / "work"), *program]
    odd = program + (["--set", "optimizer.lr=0.5"] if case.kind == "configuration" else [])
    wdir = folder / ("other" if case.kind == "shapes" else "work")
    return ["-np", str(case.ranks - 1), "-wdir", str(folder / "work"), *program, ":", "-np", "1", "-wdir", str(wdir), *odd]


def left_behind(folder):
    """Those that save for a rank that was lost have a moment longer."""
    until = time.time() + 3
    while (left := subprocess.run(["pgrep", "-f", str(folder / "c.toml")], capture_output=True, text=True).stdout.split()) and time.time() < until:
        time.sleep(0.05)
    return left


def run(case):
    with tempfile.TemporaryDirectory(prefix="onebatch-faults-") as name:
        folder = pathlib.Path(name)
        idx(folder / "work" / "data", 16)
        idx(folder / "other" / "data", 32)
        codes = folder / "codes"
        codes.mkdir()
        runs = folder / "runs"
        runs.mkdir()
        (folder / "c.toml").write_text(CONFIG.format(runs=runs, timeout=TIMEOUT, micro_batch=48 // case.ranks))
        small_disk = case.kind == "disk"
        if small_disk:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2600k", "tmpfs", str(runs)], check=True)
        try:
            moment = folder / "moment"
            environment = dict(ENVIRONMENT, CODES=str(codes), ONEBATCH_FAULT=f"{case.guilty} {case.place or '-'} {case.number} {case.kind or '-'} {moment}")
            begin = time.time()
            done = subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", *contexts(case, folder)], env=environment, capture_output=True, text=True, timeout=120)
            end = time.time()
            seconds = end - (float(moment.read_text()) if moment.exists() else begin)
            left = left_behind(folder)
            own = {int(f.name): int(f.read_text()) for f in codes.glob("[!.]*")}
            return check(case, done, seconds, moment.exists(), own, runs, left)
        finally:
            if small_disk:
                subprocess.run(["umount", "-l", str(runs)], check=True)


def first_message(output):
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith("---") and "oversubscribe" not in line]
    return " ".join(lines[:8])


def check(case, done, seconds, timed, own, runs, left):
    problems = []
    output = done.stderr + done.stdout
    user_mistake = case.kind in ("shapes", "configuration")
    survivors = {rank: code for rank, code in own.items() if rank != case.guilty}
    wanted = 2 if user_mistake else 4
    if done.returncode == 0:
        problems.append("the launcher returned 0")
    if timed and seconds > TIMEOUT + ALLOWED:
        problems.append(f"it took {seconds:.1f} s after the fault")
    problems += [f"rank {rank} ended with {code}, not {wanted}" for rank, code in survivors.items() if code != wanted]
    if case.kind == "stop" and not survivors:
        problems.append("no survivor came to an end of its own")
    if case.kind == "throw" and own.get(case.guilty, 1) != 1:
        problems.append(f"the guilty rank ended with {own.get(case.guilty)}, not 1")
    if not re.search(rf"rank {case.guilty}\b|\],{case.guilty}\]", first_message(output)):
        problems.append("the first message does not name the guilty rank")
    checkpoints = sorted(path.name for path in (runs / "run" / "checkpoints").glob("[!.]*")) if (runs / "run" / "checkpoints").exists() else []
    # What the others had done is saved, but where all wait for a save that fails, or the ranks are not one run.
    steps_go_on = case.kind in ("kill", "stop") or (case.kind == "throw" and (case.where == "a step" or case.place == "write"))
    # A rank may have finished the next step by the time a thread fails beside it.
    saved_by_others = ({"a step": [3], "a checkpoint": [4, 5] if case.place == "write" else [4]}.get(case.where) or []) if steps_go_on else []
    first = {"step-2", "latest"} if case.where in ("a step", "a checkpoint") else set()
    allowed = [first | {f"step-{step}"} for step in saved_by_others] or [first]
    # The shell around each rank dies of the launcher's SIGTERM at once, and the launcher then kills what it has left without a second's notice.
    must_be_there = saved_by_others and case.kind != "kill"
    if not any(set(checkpoints) == names or (not must_be_there and set(checkpoints) <= names) for names in allowed):
        problems.append(f"checkpoints: {checkpoints}, not {' or '.join(str(sorted(names)) for names in allowed)}")
    if left:
        problems.append(f"processes left: {left}")
    expected = {"kill": {137}, "throw": {1}, "disk": {1}}.get(case.kind, {wanted})
    if done.returncode not in expected:
        problems.append(f"the launcher returned {done.returncode}")
    ended = "ended by the launcher" if case.kind == "kill" else f"own code {wanted}"
    if problems:
        print(f"--- {case.name()}: {'; '.join(problems)}\n{output}", flush=True)
    return case, seconds, ended, " or ".join(map(str, sorted(expected))), problems


def row(result):
    case, _seconds, ended, returned, _problems = result
    return f"| {case.what} | {case.where} | {case.ranks} | {ended} | {returned} |"


def can_mount():
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True).returncode == 0
        if mounted:
            subprocess.run(["umount", folder], check=True)
        return mounted


def main():
    mountable = can_mount()
    wanted = os.environ.get("FAULTS_ONLY", "")
    cases = [case for case in all_cases() if (mountable or case.kind != "disk") and wanted in case.name()]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run, cases))
    failed = [result for result in results if result[4]]
    slowest = max((seconds for case, seconds, *_ in results if case.kind in ("kill", "stop", "throw")), default=0.0)
    print(f"{len(results) - len(failed)} of {len(results)} cases end as they should, within {slowest:.1f} s of the fault at most" + ("" if mountable else "; a full disk was not tried: mount is not allowed here"))
    rows = [row(result) for result in results]
    if wanted:
        return 1 if failed else 0
    if "--write" in sys.argv:
        text = DOCUMENT.read_text()
        head = text[: text.index("| what |")]
        DOCUMENT.write_text(head + "| what | where | ranks | the survivors | the launcher returns |\n| --- | --- | --- | --- | --- |\n" + "\n".join(rows) + "\n")
    documented = {line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")}
    missing = [line for line in rows if line not in documented]
    if missing:
        print("docs/faults.md has another table; found here:\n" + "\n".join(missing))
    return 1 if failed or missing else 0


if __name__ == "__main__":
    sys.exit(main())
