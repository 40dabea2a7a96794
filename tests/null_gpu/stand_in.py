"""Programs on a CUDA device that computes nothing, and what they have asked of it."""
import dataclasses
import functools
import itertools
import os
import pathlib
import re
import subprocess
import time

import pytest

from forked_starts import forked
from null_gpu.environment import variables
from program import read_json_lines

THREADS = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
numbers = itertools.count()


@dataclasses.dataclass
class Done:
    code: int
    words: str  # both streams
    counts: list  # of each process that asked for a device
    seconds: float

    @property
    def defects(self):
        """What the stand-in has seen."""
        return [line for line in self.words.splitlines() if "null GPU: " in line]

    def total(self, name):
        return sum(process[name] for process in self.counts)


class NullGpu:
    """`settings` are those of tests/null_gpu/settings.hpp; each rank has a device of its own unless they say otherwise."""

    def __init__(self, build, folder):
        self.build, self.folder = pathlib.Path(build) / "tests", folder
        self.program = pathlib.Path(build) / "onebatch"

    @functools.cached_property
    def cuda(self):
        """Of the CUDA that the program is built with, the first number."""
        return int(re.search(r"libcudart\.so\.(\d+)", subprocess.run(["readelf", "-d", self.program], capture_output=True, text=True, check=True).stdout)[1])

    def run(self, ranks, *arguments, program=None, seconds=120, during=None, of_rank=None, watched=True, **settings):
        """`during(process)` is called while it runs; `of_rank` has settings of single ranks. Not `watched`: tensors of symbols cannot be. Fails where it does not end in time."""
        number = next(numbers)
        counts, session = self.folder / f"counts-{number}", pathlib.Path(f"/dev/shm/null-gpu-{os.getpid()}-{number}")
        settings = {"devices": [{}] * ranks, "counts": str(counts), "session": str(session), "ranks": of_rank or {}, **settings}
        own = variables(self.build.parent, watched, **settings)
        words = [str(program or self.program)]
        if during is None:  # else processes are looked for
            loading = {name: own.pop(name) for name in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
            words, more = forked(words[0], **loading, **THREADS)
            own.update(more)
        command = ["env", *(f"{name}={value}" for name, value in own.items()), *words, *map(str, arguments)]
        if ranks > 1:
            command = ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none", *command]
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1", **THREADS, XDG_CACHE_HOME=str(self.folder / "cache"))
        begin = time.monotonic()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        try:
            if during:
                during(process)
            words, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            words, _ = process.communicate()
            pytest.fail(f"not ended after {seconds} s: {' '.join(command)}\n{words}")
        finally:
            session.unlink(missing_ok=True)
        return Done(process.returncode, words, read_json_lines(counts) if counts.exists() else [], time.monotonic() - begin)
