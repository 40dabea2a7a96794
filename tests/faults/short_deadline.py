"""What tests share in which a rank waits in vain: a small run whose ranks give up soon."""
import os
import subprocess
import time

TIMEOUT = 2.0  # comm.timeout_seconds
ALLOWED = 5.0  # beyond it
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1")
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


def ranks_of(program, config):
    found = subprocess.run(["pgrep", "-f", f"^{program} train {config}"], capture_output=True, text=True)
    return [int(text) for text in found.stdout.split()]


def running(program, folder, ranks, environment):
    """A long run that has done its first step, and its ranks' processes."""
    config = write_config(folder, 20000)
    metrics = folder / "runs" / "run" / "metrics.jsonl"
    run = subprocess.Popen(mpirun(ranks, program, "train", config, "--quiet"), env=environment, stderr=subprocess.PIPE, text=True)
    until = time.time() + 60
    while not (metrics.exists() and metrics.stat().st_size > 0) and time.time() < until:
        time.sleep(0.05)
    processes = ranks_of(program, config)
    assert len(processes) == ranks, processes
    return run, processes
