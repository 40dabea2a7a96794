#!/usr/bin/env python3
"""Every stage has a deadline, from before MPI's start to after its end; a suspended run goes on; a signal is heard from the first moment on.

stages_test.py PROGRAM FAULTY_PROGRAM
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM, FAULTY = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
TIMEOUT = 2.0
ALLOWED = 5.0
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1")
# The guilty rank stops before its first instruction; the shell itself has no rank of its own to lose.
STOP_FIRST = 'if [ "$OMPI_COMM_WORLD_RANK" = "$GUILTY" ]; then date +%s.%N > "$MOMENT"; kill -STOP $$; fi; exec "$@"'
CONFIG = """
[run]
max_steps = {steps}
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = 48
micro_batch_size = 12
[data]
kind = "synthetic"
shape = [16]
size = 480
[model]
kind = "mlp"
hidden = [32]
[probe]
cache = false
steps_per_trial = 1
[comm]
timeout_seconds = {timeout}
"""


def write_config(folder, steps):
    path = folder / "c.toml"
    path.write_text(CONFIG.format(runs=folder / "runs", steps=steps, timeout=TIMEOUT))
    return path


def mpirun(ranks, *command):
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *map(str, command)]


def check_stopped(what, ranks, guilty, command, environment, moment, loading=0.0):
    done = subprocess.run(command, env=dict(ENVIRONMENT, **environment), capture_output=True, text=True, timeout=120)
    seconds = time.time() - float(moment.read_text())
    said = done.stderr + done.stdout
    assert done.returncode not in (0, 75), f"{what}: the launcher returned {done.returncode}\n{said}"
    assert seconds <= TIMEOUT + ALLOWED + loading, f"{what}: it took {seconds:.1f} s\n{said}"
    assert f"rank {guilty} " in said and "stopped" in said, f"{what}: rank {guilty} is not named as stopped\n{said}"
    assert f"more than comm.timeout_seconds" in said, said
    left = subprocess.run(["pgrep", "-f", str(moment.parent)], capture_output=True, text=True).stdout.split()
    assert not left, f"{what}: processes left: {left}"
    print(f"{what}, {ranks} ranks: ended after {seconds:.1f} s")


def a_rank_stops_before_mpi_starts(folder, ranks, guilty):
    config, moment = write_config(folder, 4), folder / "moment"
    command = mpirun(ranks, "sh", "-c", STOP_FIRST, "sh", PROGRAM, "train", config, "--quiet")
    check_stopped("stopped before MPI's start", ranks, guilty, command, {"GUILTY": str(guilty), "MOMENT": str(moment)}, moment, loading=8.0)  # the others have yet to load LibTorch


def a_rank_stops_when_the_run_is_over(folder, ranks, guilty):
    config, moment = write_config(folder, 4), folder / "moment"
    environment = {"ONEBATCH_FAULT": f"{guilty} end 0 stop {moment}"}
    check_stopped("stopped while the run closes", ranks, guilty, mpirun(ranks, FAULTY, "train", config, "--quiet"), environment, moment)


def ranks_of(config):
    found = subprocess.run(["pgrep", "-f", f"^{PROGRAM} train {config}"], capture_output=True, text=True)
    return [int(text) for text in found.stdout.split()]


def running(folder, ranks, environment):
    """A long run that has done its first step, and its ranks' processes."""
    config = write_config(folder, 20000)
    metrics = folder / "runs" / "run" / "metrics.jsonl"
    run = subprocess.Popen(mpirun(ranks, PROGRAM, "train", config, "--quiet"), env=environment, stderr=subprocess.PIPE, text=True)
    until = time.time() + 60
    while not (metrics.exists() and metrics.stat().st_size > 0) and time.time() < until:
        time.sleep(0.05)
    processes = ranks_of(config)
    assert len(processes) == ranks, processes
    return run, processes


def a_suspended_run_goes_on(folder, ranks):
    run, processes = running(folder, ranks, ENVIRONMENT)
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    time.sleep(3 * TIMEOUT)
    for process in processes:
        os.kill(process, signal.SIGCONT)
    said = run.communicate(timeout=120)[1]
    assert run.returncode == 0, f"a run that was suspended ended with {run.returncode}\n{said}"
    print(f"{ranks} ranks suspended for {3 * TIMEOUT:.0f} s went on to the end")


def a_signal_is_heard_early(folder):
    """While LibTorch registers its operators, most of a second long, signals mean what they mean later."""
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP):
        for milliseconds in (200, 300, 400, 600):
            config = write_config(folder, 100000)
            run = subprocess.Popen([PROGRAM, "train", config, "--quiet", "--set", f"run.name=s{number}-{milliseconds}"], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            time.sleep(milliseconds / 1000)
            run.send_signal(number)
            said = run.communicate(timeout=60)[0]
            assert run.returncode == 75, f"{number.name} after {milliseconds} ms: {run.returncode}\n{said}"
    print("signals are heard 200 ms after the start")


def a_second_ctrl_c_ends_at_once(folder):
    # Nothing to save: the first one does.
    run = subprocess.Popen([PROGRAM, "probe", write_config(folder, 10), "--quiet"], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    assert run.wait(timeout=60) == -signal.SIGINT


def main():
    with tempfile.TemporaryDirectory(prefix="onebatch-stages-") as name:
        folder = pathlib.Path(name)
        cases = [(a_rank_stops_before_mpi_starts, ranks, guilty) for ranks, guilty in ((2, 0), (2, 1), (4, 2))]
        cases += [(a_rank_stops_when_the_run_is_over, ranks, guilty) for ranks, guilty in ((2, 0), (3, 2))]
        cases += [(a_suspended_run_goes_on, 2), (a_signal_is_heard_early,), (a_second_ctrl_c_ends_at_once,)]
        for index, (case, *arguments) in enumerate(cases):
            own = folder / str(index)
            own.mkdir()
            case(own, *arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
