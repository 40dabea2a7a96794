"""What a rank leaves that is stuck, dies or is asked, as its run's folder has it."""
import json
import os
import pathlib
import signal
import time

from faults.short_deadline import ENVIRONMENT, running


def searched(program):
    """An environment in which onebatch-stacks is found."""
    return dict(ENVIRONMENT, PATH=f"{pathlib.Path(program).parent}:{os.environ['PATH']}")


def incidents_in(folder):
    """But for what came of saving, which says nothing of where a rank was."""
    found = [json.loads(path.read_text()) for path in sorted((folder / "runs" / "run").glob("incident-*.json"))]
    return [incident for incident in found if incident["kind"] != "loss"]


def threads_of(incident, rank):
    return {thread["thread"]: " | ".join(thread["frames"]) for process in incident["processes"] if process["rank"] == rank for thread in process["threads"]}


def check_request(program, folder, ranks):
    """Each rank that SIGQUIT asks tells where it is, and goes on."""
    run, processes = running(program, folder, ranks, searched(program))
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
