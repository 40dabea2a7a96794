#!/usr/bin/env python3
"""--strict: each fallback that a run can take ends it on all ranks alike, in order, with exit code 2 and one message.

strict_test.py PROGRAM (the one of faulty_rank.cpp)
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(sys.argv[1]).resolve()
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1")
CONFIG = """
[run]
max_steps = {steps}
output_dir = "{folder}/runs"
[batch]
global_batch_size = {batch}
[data]
kind = "synthetic"
size = 3000
{model}
[probe]
cache = {cache}
steps_per_trial = 1
[checkpoint]
every_steps = 2
[simulate]
devices = [{devices}]
"""
MLP = 'shape = [96]\n[model]\nkind = "mlp"\nhidden = [96, 96, 96]'
LARGE_MLP = 'shape = [512]\n[model]\nkind = "mlp"\nhidden = [1024, 1024]'
RESNET = 'shape = [3, 16, 16]\n[model]\nkind = "resnet"\ndepth = 8\nstem = "cifar"\n[batch_norm]\nmode = "exact"'


class Case:
    def __init__(self, folder, ranks, model=MLP, batch=1500, steps=8, cache="false", memory="64MiB", change=""):
        self.folder, self.ranks = folder, ranks
        devices = ", ".join([f'{{memory = "{memory}", slowdown = 2.0{change}}}'] + [f'{{memory = "{memory}", slowdown = 2.0}}'] * (ranks - 1))
        (folder / "run.toml").write_text(CONFIG.format(folder=folder, model=model, batch=batch, steps=steps, cache=cache, devices=devices))

    def train(self, *more, environment=None, shell=()):
        """The launcher's exit code, each rank's own, and what was said."""
        logs = self.folder / "logs"
        shutil.rmtree(logs, ignore_errors=True)
        command = [str(PROGRAM), "train", str(self.folder / "run.toml"), "--quiet", "--log-dir", str(logs), *more]
        if self.ranks > 1:
            command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(self.ranks), *command]
        done = subprocess.run([*shell, *command], cwd=ROOT, env={**ENVIRONMENT, **(environment or {})}, capture_output=True, text=True, timeout=200)
        ends = [(logs / f"rank-{rank}.log").read_text().splitlines()[-1] for rank in range(self.ranks)]
        return done.returncode, [end.partition("exit code ")[2].split(" ")[0] for end in ends], done.stdout + done.stderr


def backend(case):
    return case.train("--strict", "--set", 'comm.backend="nccl"'), 'comm.backend = "nccl"'


def unwritable_cache(case):
    return case.train("--strict", environment={"XDG_CACHE_HOME": "/proc/nowhere"}), "probe.cache"


def torn_checkpoint(case):
    case.train()
    newest = max((case.folder / "runs/run/checkpoints").glob("step-*"), key=lambda path: int(path.name[5:])) / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-5])
    return case.train("--strict", "--resume"), "the newest checkpoint"


def no_shared_memory(case, *more):
    shell = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=900k tmpfs /dev/shm && exec "$@"', "sh"]
    return case.train("--strict", *more, shell=shell, environment={"OMPI_MCA_btl_vader_backing_directory": "/tmp"}), "shared memory"


def no_shared_memory_for_bfloat16(case):
    return no_shared_memory(case, "--set", 'comm.reduce_dtype="bfloat16"')


def less_memory(case):
    return case.train("--strict", environment={"ONEBATCH_FAULT": "1 step 3 memory -"}), "micro-batches of "


def less_memory_for_kept(case):
    return case.train("--strict", environment={"ONEBATCH_FAULT": "1 step 3 memory -"}), "rank 1's share on its device"


def kept_in_host(case):
    return case.train("--strict"), "share on its device"


def drift(case):
    return case.train("--strict"), "replanned: device speeds changed"


def may_unshare():
    return subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True).returncode == 0


CASES = {
    "a backend that is not there": (backend, {}),
    "a cache that cannot be written": (unwritable_cache, {"cache": "true"}),
    "a torn checkpoint": (torn_checkpoint, {}),
    "shared memory without room": (no_shared_memory, {}),
    "shared memory without room for what travels as bfloat16": (no_shared_memory_for_bfloat16, {}),
    "memory that goes in mid-run": (less_memory, {"memory": "4MiB"}),
    "memory that goes in mid-run, exact BatchNorm": (less_memory_for_kept, {"model": RESNET, "batch": 64, "memory": "200MiB"}),
    "what exact BatchNorm keeps has no room": (kept_in_host, {"model": RESNET, "batch": 240, "steps": 2, "memory": "8MiB"}),
    "a device that changes": (drift, {"model": LARGE_MLP, "batch": 256, "steps": 400, "memory": "1GiB", "change": ", changes = [{step = 20, slowdown = 6.0}]"}),
}


def problem_of(what, ranks, answer):
    (code, ends, said), words = answer
    message = "--strict: "
    if code != 2:
        return f"returned {code}, not 2"
    if ends != ["2"] * ranks:
        return f"the ranks' exit codes are {ends}"
    if said.count(message) != 1 or words not in said.split(message)[1]:
        return f'"{message}… {words}" is not said once'
    if "MPI_ABORT" in said:
        return "the ranks were aborted"
    return ""


def main():
    failures = 0
    for what, (cause, settings) in CASES.items():
        if cause in (no_shared_memory, no_shared_memory_for_bfloat16) and not may_unshare():
            print(f"{what}: mount namespaces are not allowed here: not tried")
            continue
        for ranks in (2, 3):
            with tempfile.TemporaryDirectory(prefix="onebatch-strict-") as name:
                answer = cause(Case(pathlib.Path(name), ranks, **settings))
                problem = problem_of(what, ranks, answer)
                print(f"{what}, {ranks} ranks: {problem or 'refused'}", flush=True)
                if problem:
                    failures += 1
                    print(answer[0][2])
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
