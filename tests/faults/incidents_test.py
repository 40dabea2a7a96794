#!/usr/bin/env python3
"""What a rank leaves that is stuck, dies or is asked: it is named with its thread, its function and its operation, and the run ends in time.

incidents_test.py PROGRAM FAULTY_PROGRAM
"""
import json
import os
import pathlib
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


def main():
    cases = [(a_forward_that_loops, 1, 0), (a_forward_that_loops, 2, 1), (a_stopped_rank, 2, 0), (a_stopped_rank, 3, 2), (a_crash, 1, 0, "segv", "crashes_in_a_worker"),
             (a_crash, 2, 1, "segv", "crashes_in_a_worker"), (a_crash, 1, 0, "overflow", "recurs_for_ever"), (a_request, 1), (a_request, 2)]  # fmt: skip
    for case, *arguments in cases:
        with tempfile.TemporaryDirectory(prefix="onebatch-incidents-") as folder:
            print(case(pathlib.Path(folder), *arguments), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
