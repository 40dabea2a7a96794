"""What the command-line tests share: the program run as a user runs it, each time with a deadline."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = sys.argv[1]
CACHE = tempfile.TemporaryDirectory(prefix="onebatch-cache-")  # of probes: not the user's, and none of an earlier test
ENVIRONMENT = dict(os.environ, XDG_CACHE_HOME=CACHE.name, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1")
DIGITS_MLP = """
[run]
epochs = 3
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = 257
[data]
kind = "idx"
path = "data/digits"
[data.validation]
[model]
kind = "mlp"
hidden = [64, 48]
[optimizer]
kind = "sgd"
lr = 0.2
momentum = 0.9
[log]
samples = true
[probe]
steps_per_trial = 1
[simulate]
devices = [{{slowdown = 1.0}}, {{slowdown = 2.0}}, {{slowdown = 1.5}}, {{slowdown = 1.2}}]
"""


class Scratch(tempfile.TemporaryDirectory):
    """A folder with a configuration in it."""

    def __init__(self, text=DIGITS_MLP):
        super().__init__(prefix="onebatch-cli-")
        self.path = pathlib.Path(self.name)
        self.runs = self.path / "runs"
        self.config = self.path / "run.toml"
        self.config.write_text(text.format(runs=self.runs))

    def __enter__(self):
        super().__enter__()
        return self


def command_line(ranks, arguments):
    command = [PROGRAM, *map(str, arguments)]
    return command if ranks == 1 else ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *command]


def run(ranks, *arguments, code=0, environment=None, seconds=120):
    """Runs to the end; returns standard output and error together. Exits the test where the code is another."""
    command = command_line(ranks, arguments)
    done = subprocess.run(command, cwd=ROOT, env={**ENVIRONMENT, **(environment or {})}, capture_output=True, text=True, timeout=seconds)
    output = done.stdout + done.stderr
    check(done.returncode in (code if isinstance(code, tuple) else (code,)), f"{' '.join(command)} returned {done.returncode}, not {code}", output)
    return output


def check(condition, what, output=""):
    if not condition:
        sys.exit(f"FAILED: {what}\n{output}")


def read_json(path):
    return json.loads(pathlib.Path(path).read_text())


def read_json_lines(path):
    return [json.loads(line) for line in open(path)]
