"""What a rank leaves that is stuck, dies or is asked: it is named with its thread, its function and its operation, and the run ends in time.
Of operations that are drawn: random_incidents.py."""
import json
import subprocess
import time

import pytest

from faults.incidents import check_request, incidents_in, searched, threads_of
from faults.short_deadline import ALLOWED, TIMEOUT, mpirun, write_config


class Incident:
    """A run in which a rank fails in the model's third forward."""

    def __init__(self, programs, folder, ranks, guilty, kind):
        program, faulty_program = programs
        moment = folder / "moment"
        command = mpirun(ranks, faulty_program, "train", write_config(folder, 6), "--quiet")
        fault = f"{guilty} model 3 {kind} {moment}"
        done = subprocess.run(command, env=dict(searched(program), ONEBATCH_FAULT=fault), capture_output=True, text=True, timeout=120)
        assert moment.exists(), f"{fault}: it never happened\n{done.stderr}"
        self.seconds = time.time() - float(moment.read_text())
        self.code, self.said, self.left = done.returncode, done.stderr, incidents_in(folder)

    def check_end(self, allowed):
        assert self.code not in (0, 75), self.said
        assert self.seconds <= allowed, self.said


@pytest.fixture
def programs(onebatch, faulty_onebatch):
    return onebatch.path, faulty_onebatch.path


@pytest.mark.parametrize("ranks, guilty", ((1, 0), (2, 1)))
def test_a_forward_that_loops_is_named_by_its_function(programs, tmp_path, ranks, guilty):
    incident = Incident(programs, tmp_path, ranks, guilty, "loop")
    incident.check_end(TIMEOUT + ALLOWED)
    own = [left for left in incident.left if left["rank"] == guilty]
    assert own, incident.said
    assert own[0]["kind"] == "timeout"
    assert any("loops_for_ever" in frames for frames in threads_of(own[0], guilty).values()), json.dumps(own[0], indent=1)
    assert "micro-batches of step 4" in json.dumps(own[0]["ranks"])
    assert f"rank {guilty} " in incident.said


@pytest.mark.parametrize("ranks, guilty", ((2, 0), (3, 2)))
def test_the_others_tell_where_a_stopped_rank_is_and_what_they_waited_in(programs, tmp_path, ranks, guilty):
    incident = Incident(programs, tmp_path, ranks, guilty, "stop")
    incident.check_end(TIMEOUT + ALLOWED)
    frames = " ".join(text for left in incident.left for text in threads_of(left, guilty).values())
    assert "fault_point" in frames, json.dumps(incident.left, indent=1)
    waited = [left["operations"][-1] for left in incident.left]
    assert waited, incident.said
    assert all(not operation["ended"] and operation["operation"] for operation in waited), waited
    assert all(len(left["operations"]) <= 32 for left in incident.left)
    assert all(left["plan"] and left["memory"]["resident_bytes"] > 0 for left in incident.left)


@pytest.mark.parametrize("ranks, guilty, kind, function", ((1, 0, "segv", "crashes_in_a_worker"), (2, 1, "segv", "crashes_in_a_worker"), (1, 0, "overflow", "recurs_for_ever")))
def test_a_crash_names_its_thread_and_its_function(programs, tmp_path, ranks, guilty, kind, function):
    incident = Incident(programs, tmp_path, ranks, guilty, kind)
    incident.check_end(ALLOWED)
    crashed = [left for left in incident.left if left["kind"] == "crash"]
    assert [left["rank"] for left in crashed] == [guilty], incident.said
    assert "SIGSEGV" in crashed[0]["reason"]
    thread = int(crashed[0]["reason"].split()[1])
    assert function in threads_of(crashed[0], guilty)[thread], json.dumps(crashed[0], indent=1)


@pytest.mark.parametrize("ranks", (1, 2))
def test_ranks_that_are_asked_tell_where_they_are_and_go_on(programs, tmp_path, ranks):
    check_request(programs[0], tmp_path, ranks)
