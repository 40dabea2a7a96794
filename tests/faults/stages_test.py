"""Every stage has a deadline, from before MPI's start to after its end; a suspended run goes on; a signal is heard from the first moment on."""
import os
import signal
import subprocess
import time

import pytest

from faults.random_faults import holds
from faults.short_deadline import ALLOWED, ENVIRONMENT, TIMEOUT, mpirun, running, write_config

# The guilty rank stops before its first instruction; the shell itself has no rank of its own to lose.
STOP_FIRST = 'if [ "$OMPI_COMM_WORLD_RANK" = "$GUILTY" ]; then date +%s.%N > "$MOMENT"; kill -STOP $$; fi; exec "$@"'


def check_stopped(guilty, command, environment, moment, loading=0.0):
    done = subprocess.run(command, env=dict(ENVIRONMENT, **environment), capture_output=True, text=True, timeout=120)
    seconds = time.time() - float(moment.read_text())
    said = done.stderr + done.stdout
    assert done.returncode not in (0, 75), said
    assert seconds <= TIMEOUT + ALLOWED + loading, said
    assert f"rank {guilty} " in said
    assert "stopped" in said
    assert "more than comm.timeout_seconds" in said
    left = subprocess.run(["pgrep", "-f", str(moment.parent)], capture_output=True, text=True).stdout.split()
    assert left == [], "processes are left"


@pytest.mark.parametrize("ranks, guilty", ((2, 0), (2, 1), (4, 2)))
def test_a_rank_that_stops_before_mpi_starts_is_named(onebatch, tmp_path, ranks, guilty):
    config, moment = write_config(tmp_path, 4), tmp_path / "moment"
    command = mpirun(ranks, "sh", "-c", STOP_FIRST, "sh", onebatch.path, "train", config, "--quiet")
    check_stopped(guilty, command, {"GUILTY": str(guilty), "MOMENT": str(moment)}, moment, loading=8.0)  # the others have yet to load LibTorch


@pytest.mark.parametrize("place", ("MPI_Comm_dup", "meeting"))
def test_a_rank_that_stops_while_the_ranks_meet_is_named(faulty_onebatch, tmp_path, place):
    config, moment = write_config(tmp_path, 4), tmp_path / "moment"
    check_stopped(0, mpirun(2, faulty_onebatch.path, "train", config, "--quiet"), {"ONEBATCH_FAULT": f"0 {place} 1 stop {moment}"}, moment)


@pytest.mark.parametrize("ranks, guilty", ((2, 0), (3, 2)))
def test_a_rank_that_stops_when_the_run_is_over_is_named(faulty_onebatch, tmp_path, ranks, guilty):
    config, moment = write_config(tmp_path, 4), tmp_path / "moment"
    check_stopped(guilty, mpirun(ranks, faulty_onebatch.path, "train", config, "--quiet"), {"ONEBATCH_FAULT": f"{guilty} end 0 stop {moment}"}, moment)


def test_a_suspended_run_goes_on(onebatch, tmp_path):
    run, processes = running(onebatch.path, tmp_path, 2, ENVIRONMENT)
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    time.sleep(3 * TIMEOUT)
    for process in processes:
        os.kill(process, signal.SIGCONT)
    said = run.communicate(timeout=120)[1]
    assert run.returncode == 0, said


def test_a_disk_that_does_not_answer_puts_the_end_off_once(onebatch, tmp_path):
    """Who tells what has happened reads the run's plan, which is now a pipe that nobody writes to."""
    run, processes = running(onebatch.path, tmp_path, 2, ENVIRONMENT)
    plan = tmp_path / "runs" / "run" / "plan.json"
    plan.unlink()
    os.mkfifo(plan)
    os.kill(processes[1], signal.SIGSTOP)
    said = run.communicate(timeout=2 * TIMEOUT + 2 * ALLOWED)[1]
    assert run.returncode not in (0, 75) and "more than comm.timeout_seconds" in said, said


@pytest.mark.parametrize("milliseconds", (0, 100, 200, 400))
@pytest.mark.parametrize("number", (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP), ids=lambda number: number.name)
def test_a_signal_is_heard_while_libtorch_registers_its_operators(onebatch, tmp_path, number, milliseconds):
    """Most of a second long, from the first library's start on, of which the loader tells. Before it a signal finds no instruction of the program."""
    loader = {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(tmp_path / "loader")}
    run = subprocess.Popen([onebatch.path, "train", write_config(tmp_path, 100000), "--quiet"], env=ENVIRONMENT | loader, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = tmp_path / f"loader.{run.pid}"
    while not said.exists() or "calling init: " not in said.read_text():
        assert run.poll() is None
        time.sleep(0.002)
    time.sleep(milliseconds / 1000)
    run.send_signal(number)
    said = run.communicate(timeout=60)[0]
    assert run.returncode == 75, said


def test_who_is_asked_where_it_is_that_early_goes_on(onebatch, tmp_path):
    run = subprocess.Popen([onebatch.path, "train", write_config(tmp_path, 5), "--quiet"], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not holds(run.pid, "USR1"):
        assert run.poll() is None
    run.send_signal(signal.SIGQUIT)
    said = run.communicate(timeout=60)[0]
    assert run.returncode == 0, said


def test_a_second_ctrl_c_ends_at_once(onebatch, tmp_path):
    # Nothing to save: the first one does.
    run = subprocess.Popen([onebatch.path, "probe", write_config(tmp_path, 10), "--quiet"], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    assert run.wait(timeout=60) == -signal.SIGINT
