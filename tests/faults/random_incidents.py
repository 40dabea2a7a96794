#!/usr/bin/env python3
"""A rank is stuck, dies or is asked in an operation that is drawn: it is named with its thread, its function and its operation, and the run ends in time.

random_incidents.py PROGRAM FAULTY_PROGRAM [--cases N] [--seed S] [--case I] [--minutes M]
"""
import argparse
import collections
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from faults.incidents import check_request, incidents_in, searched, threads_of
from faults.short_deadline import ALLOWED, TIMEOUT, mpirun, write_config

# Where a rank may fail: the operations that ranks do together, by the number of that name, and the model's forward.
PLACES = {"all_reduce": 14, "all_gather": 9, "broadcast": 12, "barrier": 2, "setting up shared memory": 1, "allocating shared memory": 1, "finding the ranks of this node": 1, "MPI_Comm_dup": 1, "meeting": 1, "close": 2, "MPI_Finalize": 1, "model": 6}
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


def run_drawn(case, program, faulty_program):
    with tempfile.TemporaryDirectory(prefix="onebatch-incidents-") as name:
        folder = pathlib.Path(name)
        if case.kind == "request":
            check_request(program, folder, case.ranks)
            return None
        moment = folder / "moment"
        command = mpirun(case.ranks, faulty_program, "train", write_config(folder, 6), "--quiet", *case.more)
        fault = f"{case.guilty} {case.place.replace(' ', '_')} {case.number} {case.kind} {moment}"
        done = subprocess.run(command, env=dict(searched(program), ONEBATCH_FAULT=fault), capture_output=True, text=True, timeout=150)
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


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("faulty_program")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int)
    parser.add_argument("--minutes", type=float, default=60.0)
    return parser.parse_args()


def main():
    given = options()
    programs = [pathlib.Path(path).resolve() for path in (given.program, given.faulty_program)]
    until = time.time() + given.minutes * 60
    done, failed, number, kinds = 0, 0, 0, collections.Counter()
    while done < given.cases and time.time() < until:
        case = Drawn(given.seed, number if given.case is None else given.case)
        number += 1
        try:
            if run_drawn(case, *programs) is NEVER:
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


if __name__ == "__main__":
    sys.exit(main())
