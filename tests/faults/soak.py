#!/usr/bin/env python3
"""One long run on devices whose memory and speed change all the time, that is saved beside its steps, struck, and gone on with: it ends when it is
asked to and never else, loses no more than it may, has the losses of a run that nobody disturbed, and does not grow.

soak.py PROGRAM [--minutes M] [--seed S] [--ranks R]
"""
import argparse
import collections
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from faults.random_faults import ENVIRONMENT, command_of, environment_of, processes_of, send

SAVED_EVERY = 25  # steps
TOLERANCE = 1e-8  # relative, of a loss in float64 after ten thousands of steps: sums are formed in another order under another plan
MOST_GROWTH = 8 << 20  # bytes of a rank, in the steps of one start: allocators keep some of what plans of other sizes have used
SETTLED = 45.0  # seconds after a start
CONFIG = """
[run]
max_steps = {steps}
output_dir = "{folder}/runs"
name = "run"
[batch]
global_batch_size = 200
replan = "always"
[data]
kind = "synthetic"
shape = [96]
size = 2000
[model]
kind = "mlp"
hidden = [96, 96]
dropout = 0.2
[optimizer]
kind = "sgd"
lr = 0.01
[precision]
parameters = "float64"
compute = "float64"
[verify]
at_start = false
[probe]
cache = false
steps_per_trial = 1
[checkpoint]
every_steps = {saved_every}
keep = 2
[comm]
timeout_seconds = 10
{devices}
"""
# What is sent, to whom, and whether the run is to end of it.
STRIKES = [("USR1", "mpirun", True), ("TERM", "mpirun", True), ("KILL", "rank", True), ("KILL", "all", True), ("SEGV", "rank", True), ("STOP and CONT", "rank", False), ("QUIT", "rank", False)]


class Failed(Exception):
    pass


def devices(rng, ranks, step):
    """Of each rank: another neighbour's appetite every few dozen steps from here on."""
    of_ranks = []
    for _ in range(ranks):
        changes, at = [], step
        for _ in range(400):
            at += rng.randint(10, 120)
            changes.append(f'{{step = {at}, slowdown = {rng.choice([1.0, 1.0, 1.5, 2.0, 4.0])}, memory = "{rng.choice([1300, 1600, 2400, 8000, 60000])}KiB"}}')
        of_ranks.append(f'{{memory = "60000KiB", step_seconds = [[1, 0.004], [256, 0.1]], changes = [{", ".join(changes)}]}}')
    return "[simulate]\ndevices = [" + ",\n".join(of_ranks) + "]"


def rows(folder):
    metrics = folder / "runs/run/metrics.jsonl"
    lines = metrics.read_text(errors="replace").splitlines() if metrics.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def last_saved(folder):
    return max((int(path.name[5:]) for path in (folder / "runs/run/checkpoints").glob("step-*")), default=0)


class Sizes:
    """Of one start's ranks, over time: bytes of memory that is their own, files and threads."""

    def __init__(self):
        self.seen = collections.defaultdict(list)
        self.begin = time.time()

    def look(self, processes):
        for rank, process in processes.items():
            try:
                status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines())
                memory = sum(int(status[key].split()[0]) << 10 for key in ("RssAnon", "RssShmem"))
                self.seen[rank].append((time.time() - self.begin, memory, len(os.listdir(f"/proc/{process}/fd")), int(status["Threads"])))
            except (OSError, KeyError):
                continue

    def growth(self):
        """The most of any rank, from when it had settled to its end; none where that was too soon."""
        grown = []
        for samples in self.seen.values():
            settled = [sample[1:] for sample in samples if sample[0] > SETTLED]
            if len(settled) >= 12:
                third = len(settled) // 3
                grown.append([statistics.median(column[-third:]) - statistics.median(column[:third]) for column in zip(*settled)])
        return [max(column) for column in zip(*grown)] if grown else None


class Soak:
    def __init__(self, program, folder, seed, ranks):
        self.program, self.folder, self.ranks, self.rng = program, folder, ranks, random.Random(seed)
        self.config = folder / "c.toml"
        self.losses, self.ends, self.lost, self.growths, self.differed, self.plans = {}, collections.Counter(), [], [], 0.0, 0

    def start(self):
        step = last_saved(self.folder)
        self.config.write_text(CONFIG.format(folder=self.folder, steps=10**7, saved_every=SAVED_EVERY, devices=devices(self.rng, self.ranks, step)))
        self.log = self.folder / "log"
        with open(self.log, "w") as out:
            self.run = subprocess.Popen(command_of(self.program, self.config, self.ranks, "--resume", "--quiet"), env=environment_of(self.folder), stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        self.sizes, self.from_step = Sizes(), step

    def train(self, seconds):
        until = time.time() + seconds
        while time.time() < until:
            if self.run.poll() is not None:
                raise Failed(f"nobody asked, and it returned {self.run.returncode}\n{self.log.read_text(errors='replace')[-4000:]}")
            self.sizes.look(processes_of(self.program, self.config))
            time.sleep(2)
        if not rows(self.folder) or rows(self.folder)[-1]["step"] <= self.from_step:
            raise Failed(f"no step in {seconds:.0f} s\n{self.log.read_text(errors='replace')[-4000:]}")

    def strike(self, kind, target):
        ranks = processes_of(self.program, self.config)
        for process in {"mpirun": [self.run.pid], "all": list(ranks.values()), "rank": [self.rng.choice(list(ranks.values()))]}[target]:
            send(process, kind.split()[0])
            if kind == "STOP and CONT":
                time.sleep(self.rng.uniform(0.1, 4.0))
                send(process, "CONT")

    def end(self, kind, target):
        """After a strike of which it is to end: in time, with a code that fits, and with what it had done."""
        try:
            code = self.run.wait(timeout=25)
        except subprocess.TimeoutExpired:
            raise Failed(f"{kind} to {target}: it does not end\n{self.log.read_text(errors='replace')[-4000:]}") from None
        if code == 0 or (kind == "USR1" and code != 75):
            raise Failed(f"{kind} to {target}: it returned {code}\n{self.log.read_text(errors='replace')[-4000:]}")
        self.ends[kind, target, code] += 1
        time.sleep(1)  # the survivors' children may take theirs
        self.check_losses()
        lost = max(self.losses) - last_saved(self.folder)
        self.lost.append((kind, target, lost))
        nobody_could = target == "all" or "not saved after the loss of" in (said := self.log.read_text(errors="replace")) and "measured anew" in said
        most = {"USR1": 0, "TERM": 1}.get(kind, SAVED_EVERY + 1 if nobody_could else 1)
        if lost > most:
            raise Failed(f"{kind} to {target}: {lost} steps are lost\n{self.log.read_text(errors='replace')[-4000:]}")
        if growth := self.sizes.growth():
            self.growths.append(growth)

    def check_losses(self):
        seen = rows(self.folder)
        self.plans += max((row["plan"] for row in seen if row["step"] > self.from_step), default=0)
        for row in seen:
            before = self.losses.setdefault(row["step"], row["loss"])
            self.differ(row["step"], row["loss"], before)

    def differ(self, step, loss, expected):
        difference = abs(loss - expected) / abs(expected)
        self.differed = max(self.differed, difference)
        if difference > TOLERANCE:
            raise Failed(f"step {step}: a loss of {loss!r}, and of {expected!r} before or undisturbed")

    def compare_with_undisturbed(self):
        folder = self.folder / "undisturbed"
        folder.mkdir()
        config = folder / "c.toml"
        config.write_text(CONFIG.format(folder=folder, steps=max(self.losses), saved_every=0, devices="") + "check_replicas_every_steps = 0\n")
        subprocess.run(command_of(self.program, config, 1, "--quiet"), env=environment_of(folder), check=True, stdout=subprocess.DEVNULL)
        for row in rows(folder):
            if row["step"] not in self.losses:
                raise Failed(f"step {row['step']} is missing")
            self.differ(row["step"], self.losses[row["step"]], row["loss"])


def soak(run, minutes):
    begin = time.time()
    run.start()
    while time.time() < begin + minutes * 30:  # half of the time it is struck often, half of it it is left in peace but for what harms nobody
        run.train(run.rng.uniform(8, 45))
        kind, target, ends = run.rng.choice(STRIKES)
        print(f"{time.time() - begin:6.0f} s, step {rows(run.folder)[-1]['step']}: {kind} to {target}", flush=True)
        run.strike(kind, target)
        if ends:
            run.end(kind, target)
            run.start()
    while time.time() < begin + minutes * 60:
        run.train(run.rng.uniform(20, 90))
        kind, target, ends = run.rng.choice(STRIKES)
        if not ends:
            run.strike(kind, target)
    run.strike("USR1", "mpirun")
    run.end("USR1", "mpirun")
    run.compare_with_undisturbed()
    left = [process for process in processes_of(run.program, run.config).values()]
    if left:
        raise Failed(f"processes left: {left}")
    grown = [max(column) for column in zip(*run.growths)] or [0, 0, 0]
    if grown[0] > MOST_GROWTH or grown[1] > 0 or grown[2] > 0:
        raise Failed(f"a rank has grown by {grown[0] / 2**20:.1f} MiB, {grown[1]} files and {grown[2]} threads")
    for (kind, target, code), count in sorted(run.ends.items(), key=str):
        print(f"  {kind:6} to {target:7} {code:4} {count}")
    most = max((lost for _, _, lost in run.lost), default=0)
    if run.plans == 0:
        raise Failed("no plan was ever another: nothing was tried")
    print(f"{max(run.losses)} steps in {sum(run.ends.values())} starts under {run.plans} further plans; losses differ from the undisturbed run's by {run.differed:.1e} at most; {most} steps lost at most at once; "
          f"in {len(run.growths)} starts of more than a minute and a half a rank grew by {grown[0] / 2**20:.1f} MiB, {grown[1]:.0f} files, {grown[2]:.0f} threads at most")  # fmt: skip


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program", type=pathlib.Path)
    options.add_argument("--minutes", type=float, default=30.0)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--ranks", type=int, default=3)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="onebatch-soak-") as folder:
        run = Soak(given.program.resolve(), pathlib.Path(folder), given.seed, given.ranks)
        try:
            soak(run, given.minutes)
        except Failed as failure:
            print(f"FAILED --seed {given.seed}: {failure}")
            return 1
        finally:
            for process in [run.run.pid, *processes_of(run.program, run.config).values()]:
                send(process, "KILL")
    return 0


if __name__ == "__main__":
    sys.exit(main())
