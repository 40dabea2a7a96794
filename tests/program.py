"""The program run as a user runs it, each time with a deadline, and what it leaves behind."""
import json
import os
import pathlib
import struct
import subprocess

import pytest

from forked_starts import forked

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Of the environment, for one that has nothing else: where CUDA's libraries are missing, their stand-ins are found so.
LOADER = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
LETTERS = {"F32": "f", "F64": "d", "I64": "q", "BOOL": "?"}  # of the types that a run writes
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
DIGITS_RESNET = DIGITS_MLP.replace('kind = "mlp"\nhidden = [64, 48]', 'kind = "resnet"\ndepth = 8\nstem = "cifar"')

# The end of a configuration whose numbers are compared with others'.
SGD_IN_FLOAT64 = """[optimizer]
kind = "sgd"
lr = 0.1
[precision]
compute = "float64"
parameters = "float64"
"""


class Scratch:
    """A folder with a configuration in it."""

    def __init__(self, path, text=DIGITS_MLP):
        self.path = path
        self.runs = path / "runs"
        self.config = path / "run.toml"
        self.config.write_text(text.format(runs=self.runs))

    def folders(self):
        """The names of the runs."""
        return sorted(path.name for path in self.runs.iterdir())


class Program:
    """`cache` is where it keeps probes: not the user's, and none of another test's."""

    def __init__(self, path, cache):
        self.path = str(pathlib.Path(path).resolve())
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(cache))

    def command_line(self, ranks, *arguments, words=None):
        """`words` start the program, where not its path."""
        command = [*(words or [self.path]), *map(str, arguments)]
        return command if ranks == 1 else ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *command]

    def environment_with(self, changes):
        """None takes a variable away."""
        return {name: value for name, value in {**self.environment, **(changes or {})}.items() if value is not None}

    def start(self, ranks, *arguments, **options):
        """A process with both streams in one pipe."""
        return self.start_command(self.command_line(ranks, *arguments), **options)

    def start_command(self, command, environment=None, **options):
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options}
        return subprocess.Popen(command, cwd=ROOT, env=self.environment_with(environment), text=True, **streams)

    def finish(self, command, environment=None, seconds=120, **options):
        """Any command to its end, as subprocess.run() gives it."""
        return subprocess.run(command, cwd=ROOT, env=self.environment_with(environment), capture_output=True, text=True, timeout=seconds, **options)

    def run(self, ranks, *arguments, code=0, environment=None, seconds=120):
        """Runs to the end; returns standard output and error together. Fails where the exit code is another (or none of several).

        Loaded anew only in an `environment` of its own, which libraries may read when they are loaded."""
        __tracebackhide__ = True
        words, more = ([self.path], {}) if environment else forked(self.path)
        command = self.command_line(ranks, *arguments, words=words)
        done = self.finish(command, environment or more, seconds)
        output = done.stdout + done.stderr
        if done.returncode not in (code if isinstance(code, tuple) else (code,)):
            pytest.fail(f"{' '.join(command)} returned {done.returncode}, not {code}\n{output}")
        return output


def settings(*pairs):
    """"--set" before each."""
    return [word for pair in pairs for word in ("--set", pair)]


def read_json(path):
    return json.loads(pathlib.Path(path).read_text())


def read_json_lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def read_safetensors(path):
    """name -> numbers, from the format's definition."""
    raw = pathlib.Path(path).read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    tensors = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        letter = LETTERS[entry["dtype"]]
        tensors[name] = struct.unpack(f"<{(end - begin) // struct.calcsize(letter)}{letter}", raw[8 + length + begin : 8 + length + end])
    return tensors


def write_safetensors(path, **tensors):
    """name = (dtype, shape, values)."""
    header, raw = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}{LETTERS[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(raw), len(raw) + len(packed)]}
        raw += packed
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw)


def relative_l2(found, expected):
    """Of all tensors together."""
    error = sum((x - y) ** 2 for name in expected for x, y in zip(found[name], expected[name], strict=True))
    return (error / sum(y * y for name in expected for y in expected[name])) ** 0.5
