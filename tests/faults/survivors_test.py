#!/usr/bin/env python3
"""One rank of a run is lost in a random step: the others save the last step that they have finished, say so in a line, and the run goes on from
there to the very bits of one that nobody disturbed.

survivors_test.py PROGRAM [--cases N] [--minutes M] [--seed S] [--case I] [--jobs J]
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from random_faults import Failed, command_of, environment_of, processes_of, send

TIMEOUT = 2.0  # comm.timeout_seconds
ALLOWED = 5.0  # beyond it
STEPS = {"mlp": 300, "frozen mlp": 300, "resnet": 40}
# Nothing is saved but by those that are left, and at the end.
CONFIG = """
[run]
max_steps = {steps}
output_dir = "{folder}/runs"
name = "run"
[batch]
global_batch_size = 24
replan = "never"
[data]
kind = "synthetic"
shape = {shape}
size = 240
[model]
{model}
[batch_norm]
mode = "{batch_norm}"
[optimizer]
kind = "adamw"
lr = 0.001
ema_decay = {ema_decay}
[checkpoint]
every_minutes = 10
[probe]
cache = false
steps_per_trial = 1
max_val = 12
[comm]
timeout_seconds = {timeout}
[simulate]
devices = [{devices}]
"""
MLP = 'kind = "mlp"\nhidden = [256, 128]'
MODELS = {"mlp": ("[16]", MLP), "frozen mlp": ("[16]", MLP + '\nfreeze = ["layer0.*"]'), "resnet": ("[3, 8, 8]", 'kind = "resnet"\ndepth = 8\nstem = "cifar"')}
# A folder in which nothing can be kept: MPI carries all, and ranks are to each other as if on hosts of their own.
NO_SHARED_MEMORY = {"OMPI_MCA_osc_sm_backing_store": "/proc"}
SAID = re.compile(r"saved step (\d+) by rank (\d) after the loss of rank (\d)|(not saved|nothing to save) after (.*)")


class Case:
    def __init__(self, seed, number):
        rng = random.Random(seed * 100003 + number)
        self.number = number
        self.ranks = rng.randint(2, 4)
        self.guilty = rng.randrange(self.ranks)
        self.model, self.batch_norm = rng.choice([("mlp", "local"), ("frozen mlp", "local"), ("resnet", "exact"), ("resnet", "sync"), ("resnet", "local")])
        self.shared = rng.random() < 0.7
        self.kind = rng.choices(["KILL", "STOP", "SEGV", "ABRT"], [6, 2, 1, 1])[0]
        self.after = rng.uniform(0.0, 0.8)  # of the run's steps
        self.pause = rng.uniform(0.0, 0.05)  # seconds, so that every part of a step is met
        self.ema_decay = rng.choice([0.0, 0.9])
        self.name = (
            f"{self.kind} to rank {self.guilty} of {self.ranks} after {self.after * 100:.0f} % of the steps, {self.model}, {self.batch_norm} BatchNorm, "
            f"{'averaged weights, ' if self.ema_decay else ''}{'shared memory' if self.shared else 'MPI alone'}"
        )

    def kind_of_run(self):
        return self.ranks, self.model, self.batch_norm, self.shared, self.ema_decay


def environment(case, folder):
    return environment_of(folder) | ({} if case.shared else NO_SHARED_MEMORY)


def write_config(case, folder):
    shape, model = MODELS[case.model]
    config = folder / "c.toml"
    devices = ", ".join(["{step_seconds = [[12, 0.004]]}"] * case.ranks)
    config.write_text(CONFIG.format(folder=folder, steps=STEPS[case.model], shape=shape, model=model, batch_norm=case.batch_norm, timeout=TIMEOUT, devices=devices, ema_decay=case.ema_decay))
    return config


def end_of(folder):
    """What a run has come to, bit for bit."""
    latest = folder / "runs" / "run" / "checkpoints" / "latest"
    names = ["model.safetensors", "optimizer.safetensors", "rank_buffers.safetensors", "rank_generators.safetensors"]
    return {name: hashlib.sha256((latest / name).read_bytes()).hexdigest() for name in names if (latest / name).exists()}


def steps_done(folder):
    metrics = folder / "runs" / "run" / "metrics.jsonl"
    return metrics.read_text(errors="replace").count("\n") if metrics.exists() else 0


def run_to_the_end(case, program, folder, *more):
    done = subprocess.run(command_of(program, folder / "c.toml", case.ranks, "--quiet", *more), env=environment(case, folder), capture_output=True, text=True, timeout=240)
    if done.returncode != 0:
        raise Failed(f"{' '.join(more)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


class References:
    """Undisturbed runs, one of a kind, and the plan of each: with BatchNorm that is a part of the result."""

    def __init__(self, program, folder):
        self.program, self.folder, self.known, self.lock = program, folder, {}, threading.Lock()

    def of(self, case):
        with self.lock:
            own = self.known.setdefault(case.kind_of_run(), [threading.Lock(), None])
        with own[0]:
            if own[1] is None:
                folder = self.folder / "-".join(map(str, case.kind_of_run()))
                folder.mkdir()
                write_config(case, folder)
                run_to_the_end(case, self.program, folder)
                shutil.copy(folder / "runs" / "run" / "plan.json", folder / "plan.json")
                own[1] = (folder / "plan.json", end_of(folder))
        return own[1]


def strike(case, run, program, config, folder):
    """At the moment that the case wants; the steps that rank 0 had done."""
    until = time.time() + 120
    while steps_done(folder) <= case.after * STEPS[case.model] and time.time() < until and run.poll() is None:
        time.sleep(0.01)
    time.sleep(case.pause)
    ranks = processes_of(program, config)
    if run.poll() is not None or case.guilty not in ranks:
        raise Failed("it ended before it was struck")
    send(ranks[case.guilty], case.kind)


def wait_until_nobody_is_left(program, config):
    until = time.time() + 5
    while (left := processes_of(program, config)) and time.time() < until:
        time.sleep(0.02)
    if left:
        raise Failed(f"processes left: {left}")


def words_of(folder, output):
    """What was said of saving: on the terminal, and in the file that stays."""
    files = [json.loads(path.read_text()) for path in (folder / "runs" / "run").glob("incident-*.json")]
    said = [incident["reason"] for incident in files if incident["kind"] == "loss"]
    # Ranks that do not hear of each other in time may each come to something, and so may one that stood still and wakes. One saves.
    kept = [line for line in said if line.startswith("saved")] or said
    if not kept or len([line for line in said if line.startswith("saved")]) > 1:
        raise Failed(f"{len(kept)} files say what came of saving: {kept}")
    found = SAID.search(kept[0])
    if not found:
        raise Failed(f"it says: {kept[0]}")
    return found, kept[0] in output


def check_saved(case, said, folder, done):
    step, writer, lost = (int(said[i]) for i in (1, 2, 3))
    checkpoints = sorted(path.name for path in (folder / "runs" / "run" / "checkpoints").glob("step-*"))
    if checkpoints != [f"step-{step}"]:
        raise Failed(f"it says {said[0]}, and there are {checkpoints}")
    if lost != case.guilty or writer == case.guilty:
        raise Failed(f"it says {said[0]}")
    if step < done - 1:
        raise Failed(f"rank 0 had done {done} steps, and step {step} was saved")


def check_words(case, said, folder, done):
    if said[1]:
        return check_saved(case, said, folder, done)
    # Tables that are measured anew, on a machine that has become slower, borrow the replica.
    if "measured anew" in said[0]:
        return None
    # Running statistics of a rank's own are in its own memory where nothing is shared.
    if not case.shared and case.model == "resnet" and case.batch_norm == "local" and "cannot be read from here" in said[0]:
        return None
    raise Failed(f"it was not saved: {said[0]}")


def run_case(program, case, references):
    with tempfile.TemporaryDirectory(prefix="onebatch-survivors-") as name:
        folder = pathlib.Path(name)
        output = ""
        try:
            plan, expected = references.of(case)
            config = write_config(case, folder)
            log = folder / "log"
            with open(log, "w") as out:
                command = command_of(program, config, case.ranks, "--quiet", "--plan", str(plan))
                run = subprocess.Popen(command, env=environment(case, folder), stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                strike(case, run, program, config, folder)
                begin = time.time()
                code = run.wait(timeout=60)
                seconds = time.time() - begin
            finally:
                if run.poll() is None:
                    os.killpg(run.pid, signal.SIGKILL)
                output = log.read_text(errors="replace")
            wait_until_nobody_is_left(program, config)
            if code == 0 or seconds > TIMEOUT + ALLOWED:
                raise Failed(f"it returned {code} after {seconds:.1f} s")
            if case.kind == "STOP" and code != 4:
                raise Failed(f"it returned {code}, not 4")
            done = steps_done(folder)
            said, on_terminal = words_of(folder, output)
            check_words(case, said, folder, done)
            resumed = run_to_the_end(case, program, folder, "--resume", "--plan", str(plan))
            if end_of(folder) != expected:
                raise Failed(f"it went on to another end; {resumed}")
            return None, int(said[1]) - done if said[1] else "not saved", on_terminal, seconds
        except (Failed, subprocess.TimeoutExpired) as failure:
            for process in processes_of(program, folder / "c.toml").values():
                send(process, "KILL")
            return f"{failure}\n{output[-3000:]}", None, False, 0.0


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("--cases", type=int, default=100)
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--case", type=int)
    options.add_argument("--jobs", type=int, default=1)
    given = options.parse_args()
    program = pathlib.Path(given.program).resolve()
    until = time.time() + given.minutes * 60
    failures, lost, said, seconds, done = [], collections.Counter(), 0, collections.defaultdict(float), 0

    with tempfile.TemporaryDirectory(prefix="onebatch-references-") as name, concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        references = References(program, pathlib.Path(name))

        def one(number):
            case = Case(given.seed, number)
            return None if time.time() > until else (case, *run_case(program, case, references))

        for result in pool.map(one, [given.case] if given.case is not None else range(given.cases)):
            if result is None:
                continue
            case, failure, difference, on_terminal, took = result
            done += 1
            if failure:
                failures.append(case)
                print(f"FAILED --seed {given.seed} --case {case.number}: {case.name}: {failure}", flush=True)
                continue
            lost[difference] += 1
            said += on_terminal
            seconds[case.kind] = max(seconds[case.kind], took)
    for difference, count in sorted(lost.items(), key=str):
        print(f"  saved step less the steps in metrics.jsonl: {difference}: {count}")
    print(f"  said on the terminal too: {said}; longest: " + ", ".join(f"{kind} {took:.1f} s" for kind, took in sorted(seconds.items())))
    print(f"{done - len(failures)} of {done} losses were saved, or said why not, and went on to the same bits; {given.cases} were asked for")
    return 1 if failures or done == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
