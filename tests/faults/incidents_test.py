#!/usr/bin/env python3
"""What a rank leaves that is stuck, dies or is asked: it is named with its thread, its function and its operation, and the run ends in time.

incidents_test.py PROGRAM FAULTY_PROGRAM                                              the cases that are always tried
incidents_test.py PROGRAM FAULTY_PROGRAM --random N [--seed S] [--case I] [--minutes M]  so many that are drawn
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from stages_test import ALLOWED, ENVIRONMENT, TIMEOUT, mpirun, running, write_config

PROGRAM, FAULTY = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
SEARCHED = dict(ENVIRONMENT, PATH=f"{PROGRAM.parent}:{os.environ['PATH']}")


def incidents_in(folder):
    """But for what came of saving, which says nothing of where a rank was."""
    found = [json.loads(path.read_text()) for path in sorted((folder / "runs" / "run").glob("incident-*.json"))]
    return [incident for incident in found if incident["kind"] != "loss"]


def threads_of(incident, rank):
    return {thread["thread"]: " | ".join(thread["frames"]) for process in incident["processes"] if process["rank"] == rank for thread in process["threads"]}


def run_with(folder, ranks, fault, steps=6):
    """The launcher's code, the seconds since the fault, and what was left."""
    moment = folder / "moment"
    command = mpirun(ranks, FAULTY, "train", write_config(folder, steps), "--quiet")
    done = subprocess.run(command, env=dict(SEARCHED, ONEBATCH_FAULT=f"{fault} {moment}"), capture_output=True, text=True, timeout=120)
    assert moment.exists(), f"{fault}: it never happened\n{done.stderr}"
    return done, time.time() - float(moment.read_text()), incidents_in(folder)


def a_forward_that_loops(folder, ranks, guilty):
    done, seconds, left = run_with(folder, ranks, f"{guilty} model 3 loop")
    assert done.returncode not in (0, 75) and seconds <= TIMEOUT + ALLOWED, f"{done.returncode} after {seconds:.1f} s\n{done.stderr}"
    own = [incident for incident in left if incident["rank"] == guilty]
    assert own and own[0]["kind"] == "timeout", f"rank {guilty} has left nothing: {done.stderr}"
    assert any("loops_for_ever" in frames for frames in threads_of(own[0], guilty).values()), json.dumps(own[0], indent=1)
    assert "micro-batches of step 4" in json.dumps(own[0]["ranks"]), own[0]["ranks"]
    assert f"rank {guilty} " in done.stderr, done.stderr
    return f"a forward that loops on rank {guilty} of {ranks}: ended after {seconds:.1f} s, its function named"


def a_stopped_rank(folder, ranks, guilty):
    done, seconds, left = run_with(folder, ranks, f"{guilty} model 3 stop")
    assert done.returncode not in (0, 75) and seconds <= TIMEOUT + ALLOWED, f"{done.returncode} after {seconds:.1f} s\n{done.stderr}"
    frames = " ".join(text for incident in left for text in threads_of(incident, guilty).values())
    assert "fault_point" in frames, f"where rank {guilty} stopped is not told:\n{json.dumps(left, indent=1)}"
    waited = [incident["operations"][-1] for incident in left]
    assert all(not operation["ended"] and operation["operation"] for operation in waited), waited
    assert all(len(incident["operations"]) <= 32 and incident["plan"] and incident["memory"]["resident_bytes"] > 0 for incident in left)
    return f"rank {guilty} of {ranks} stopped: ended after {seconds:.1f} s, the others waited in {waited[0]['operation']}"


def a_crash(folder, ranks, guilty, kind, function):
    done, seconds, left = run_with(folder, ranks, f"{guilty} model 3 {kind}")
    assert done.returncode not in (0, 75) and seconds <= ALLOWED, f"{done.returncode} after {seconds:.1f} s\n{done.stderr}"
    crashed = [incident for incident in left if incident["kind"] == "crash"]
    assert len(crashed) == 1 and crashed[0]["rank"] == guilty and "SIGSEGV" in crashed[0]["reason"], f"{left}\n{done.stderr}"
    thread = int(crashed[0]["reason"].split()[1])
    assert function in threads_of(crashed[0], guilty)[thread], json.dumps(crashed[0], indent=1)
    return f"a crash ({kind}) on rank {guilty} of {ranks}: ended after {seconds:.1f} s, the thread and its function named"


def a_request(folder, ranks):
    run, processes = running(folder, ranks, SEARCHED)
    for process in processes:
        os.kill(process, signal.SIGQUIT)
    until = time.time() + 20
    while len(incidents_in(folder)) < ranks and time.time() < until:
        time.sleep(0.1)
    for process in processes:
        os.kill(process, signal.SIGUSR1)
    said = run.communicate(timeout=60)[1]
    left = incidents_in(folder)
    assert run.returncode == 75, f"a run that was asked ended with {run.returncode}\n{said}"
    assert sorted(incident["rank"] for incident in left) == list(range(ranks)) and all(incident["kind"] == "request" for incident in left), said
    assert all(any("main" in frames for frames in threads_of(incident, incident["rank"]).values()) for incident in left)
    return f"{ranks} rank(s) asked by SIGQUIT: each told where it was, and went on"


# Where a rank may fail: the operations that ranks do together, by the number of that name, and the model's forward.
PLACES = {"all_reduce": 14, "all_gather": 9, "broadcast": 12, "barrier": 2, "setting up shared memory": 1, "allocating shared memory": 1, "finding the ranks of this node": 1, "close": 2, "MPI_Finalize": 1, "model": 6}
FUNCTIONS = {"stop": "fault_point", "loop": "loops_for_ever", "segv": "crashes_in_a_worker", "overflow": "recurs_for_ever"}
NEVER = object()  # the run had no such moment


class Drawn:
    def __init__(self, seed, number):
        rng = random.Random(seed * 100003 + number)
        self.ranks = rng.randint(1, 3)
        self.guilty = rng.randrange(self.ranks)
        self.place = rng.choice([*PLACES]) if self.ranks > 1 else "model"
        self.number = rng.randint(1, PLACES[self.place])
        self.kind = rng.choice([*FUNCTIONS, "request"] if self.place == "model" else ["stop", "stop", *FUNCTIONS])
        if self.ranks == 1 and self.kind == "stop":
            self.kind = "loop"  # where all stand still, nobody is there to notice
        self.more = rng.choice(([], ["--set", "comm.backend=mpi"], ["--set", "comm.overlap=true"], ["--set", "comm.check_replicas_every_steps=1"], ["--set", "run.deterministic=bitwise"]))
        self.name = f"{self.kind} in {self.place} {self.number} of rank {self.guilty} of {self.ranks} {' '.join(self.more[1:])}"


def check_drawn(case, done, seconds, left, has_met):
    """Raises AssertionError. What was left in a file, or, before there is a folder, said."""
    crash = case.kind in ("segv", "overflow")
    allowed = ALLOWED + (0 if crash else TIMEOUT) + (60 if case.place == "MPI_Finalize" or not has_met else 0)  # while MPI starts and ends it is a minute
    assert done.returncode not in (0, 75) and seconds <= allowed, f"{done.returncode} after {seconds:.1f} s"
    said = done.stderr
    assert f"rank {case.guilty} " in said, f"rank {case.guilty} is not named"
    if not has_met and not crash:  # of a deadline there is the message alone
        assert re.search(r"in [a-zA-Z_ ]+ \(operation \d+, \d+ bytes\)", said), "the operation is not named"
        return
    if not left:
        assert FUNCTIONS[case.kind] in said and f"threads of rank {case.guilty}" in said, "nothing was left, nor said"
        assert case.place == "model" or case.place in said, "the operation is not named"
        return
    own = [incident for incident in left if incident["rank"] == case.guilty]
    if crash:
        assert len(own) == 1 and own[0]["kind"] == "crash" and "SIGSEGV" in own[0]["reason"], own
        frames = threads_of(own[0], case.guilty)[int(own[0]["reason"].split()[1])]
    else:
        frames = " ".join(text for incident in left for text in threads_of(incident, case.guilty).values())
        frames += "" if own else said  # it may not have known of the folder yet
    assert FUNCTIONS[case.kind] in frames, f"where rank {case.guilty} was is not told"
    if case.place != "model":
        check_operation(case, own if own and case.kind != "stop" else left)


def check_operation(case, incidents):
    """What it was in: its own last operation, or what the others say of it."""
    named = [incident["operations"][-1]["operation"] for incident in incidents if incident["operations"]]
    named += [rank["operation"] for incident in incidents for rank in incident["ranks"] if rank["rank"] == case.guilty and rank["inside"]]
    parted = case.place == "close" and "MPI_Finalize" in named  # nobody can be asked for an operation any more, only for a stack
    nested = "allocating shared memory" in named  # of operations in others the outermost is told
    assert case.place in named or parted or nested, f"{case.place} is not named, but {named}"


def run_drawn(case):
    with tempfile.TemporaryDirectory(prefix="onebatch-incidents-") as name:
        folder = pathlib.Path(name)
        if case.kind == "request":
            a_request(folder, case.ranks)
            return None
        moment = folder / "moment"
        command = mpirun(case.ranks, FAULTY, "train", write_config(folder, 6), "--quiet", *case.more)
        fault = f"{case.guilty} {case.place.replace(' ', '_')} {case.number} {case.kind} {moment}"
        done = subprocess.run(command, env=dict(SEARCHED, ONEBATCH_FAULT=fault), capture_output=True, text=True, timeout=150)
        if not moment.exists():
            assert done.returncode == 0, f"{done.returncode}\n{done.stderr}"
            return NEVER
        left = incidents_in(folder)
        try:
            check_drawn(case, done, time.time() - float(moment.read_text()), left, (folder / "runs" / "run").exists())
        except AssertionError as error:
            texts = "".join(path.read_text() for path in (folder / "runs").glob("run/incident-*.txt"))
            raise AssertionError(f"{error}\n{done.stderr}\n{texts}") from None
        return None


def try_random(given):
    until = time.time() + given.minutes * 60
    done, failed, number, kinds = 0, 0, 0, collections.Counter()
    while done < given.random and time.time() < until:
        case = Drawn(given.seed, number if given.case is None else given.case)
        number += 1
        try:
            if run_drawn(case) is NEVER:
                continue
        except (AssertionError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"FAILED --seed {given.seed} --case {number - 1 if given.case is None else given.case}: {case.name}: {error}", flush=True)
        done += 1
        kinds[f"{case.kind} in {case.place}"] += 1
    for kind, count in sorted(kinds.items()):
        print(f"  {kind:45} {count}")
    print(f"{done - failed} of {done} incidents name rank, thread, function and operation")
    return 1 if failed or done == 0 else 0


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("faulty_program")
    options.add_argument("--random", type=int)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--case", type=int)
    options.add_argument("--minutes", type=float, default=60.0)
    given = options.parse_args()
    if given.random is not None:
        return try_random(given)
    cases = [(a_forward_that_loops, 1, 0), (a_forward_that_loops, 2, 1), (a_stopped_rank, 2, 0), (a_stopped_rank, 3, 2), (a_crash, 1, 0, "segv", "crashes_in_a_worker"),
             (a_crash, 2, 1, "segv", "crashes_in_a_worker"), (a_crash, 1, 0, "overflow", "recurs_for_ever"), (a_request, 1), (a_request, 2)]  # fmt: skip
    for case, *arguments in cases:
        with tempfile.TemporaryDirectory(prefix="onebatch-incidents-") as folder:
            print(case(pathlib.Path(folder), *arguments), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
