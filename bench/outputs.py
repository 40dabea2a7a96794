#!/usr/bin/env python3
"""What all that a run leaves costs: runs with everything on (JSON lines, tables, event files, samples, a sink that is told all) and with everything
off, in turn. Devices whose steps take a known time, so that a busy machine does not drown the difference; the time of a step is taken from when its
lines come.

outputs.py [PROGRAM] [--milliseconds 20] [--steps 500] [--rounds 5] [--ranks 1]
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

CONFIG = """
[run]
output_dir = "{folder}/runs"
max_steps = {steps}
[batch]
global_batch_size = {batch}
micro_batch_size = 16
[data]
kind = "synthetic"
shape = [16]
num_classes = 4
size = 4096
[model]
kind = "mlp"
hidden = [16]
[checkpoint]
every_minutes = 0
[verify]
at_start = false
[simulate]
devices = [{devices}]
[log]
every_steps = {every}
"""
SINK = [sys.executable, "-c", "import sys; [None for line in sys.stdin]"]
ON = ["log.jsonl=true", "log.csv=true", "log.tensorboard=true", "log.samples=true", f"log.sinks=[{{command = {SINK!r}}}]".replace("'", '"')]
OFF = ["log.jsonl=false", "log.csv=false", "log.tensorboard=false", "log.samples=false"]


def step_seconds(command, every):
    """From the first line about a step to the last."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    seen = []
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        for line in process.stdout:
            found = re.match(r"step (\d+)/", line)
            if found:
                seen.append((int(found.group(1)), time.monotonic()))
    if process.returncode != 0 or len(seen) < 2:
        sys.exit(f"{' '.join(command)}: {process.returncode}, {len(seen)} lines about steps")
    (first, begin), (last, end) = seen[0], seen[-1]
    return (end - begin) / (last - first)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?", default="build/onebatch")
    for name, default in (("milliseconds", 20), ("steps", 500), ("rounds", 5), ("ranks", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    every = max(1, arguments.steps // 10)
    device = f"{{step_seconds = [[1, {arguments.milliseconds / 16e3}], [16, {arguments.milliseconds / 1e3}]]}}"
    times = {"on": [], "off": []}
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "outputs.toml"
        config.write_text(CONFIG.format(folder=folder, steps=arguments.steps, every=every, batch=16 * arguments.ranks, devices=", ".join([device] * arguments.ranks)))
        for _ in range(arguments.rounds):
            for name, assignments in (("off", OFF), ("on", ON)):
                command = [arguments.program, "train", str(config), *(word for one in assignments for word in ("--set", one))]
                if arguments.ranks > 1:
                    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(arguments.ranks), *command]
                times[name].append(step_seconds(command, every))
    on, off = (statistics.median(times[name]) for name in ("on", "off"))
    print(f"{arguments.ranks} rank(s), steps of {arguments.milliseconds} ms, {arguments.rounds} rounds of {arguments.steps} steps: all on {1e3 * on:.3f} ms a step, all off {1e3 * off:.3f} ms: "
          f"{1e6 * (on - off):+.0f} µs, {100 * (on / off - 1):+.2f} %")


if __name__ == "__main__":
    main()
