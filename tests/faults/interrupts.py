#!/usr/bin/env python3
"""Ctrl-C in a terminal in which `onebatch launch` trains, and SIGUSR1 to an mpirun, at random moments: the run saves and ends with 75, loses no step, and goes on with
--resume to the bits of one that nobody disturbed.

interrupts.py PROGRAM [--cases N] [--minutes M] [--seed S] [--jobs J] [--case I]
"""
import argparse
import concurrent.futures
import fcntl
import json
import os
import pathlib
import pty
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time

from small_runs import ENVIRONMENT, TRACES, configuration

STEPS, RANKS, SECONDS = 150, (1, 2, 3, 4), 90
MORE = "[comm]\ntimeout_seconds = 20\n[log]\nsamples = true\n"


class Failed(Exception):
    pass


class Terminal:
    """A process that has a terminal of its own, in whose foreground it is."""

    def __init__(self, command):
        own, given = pty.openpty()

        def take():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.keyboard, self.said, self.begun = own, b"", threading.Event()
        self.process = subprocess.Popen(command, stdin=given, stdout=given, stderr=given, env=ENVIRONMENT, preexec_fn=take)
        os.close(given)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while True:
            try:
                some = os.read(self.keyboard, 65536)
            except OSError:
                return
            if not some:
                return
            self.said += some
            self.begun.set()

    def press(self, key):
        os.write(self.keyboard, key)

    def end(self):
        """The code, and what was shown."""
        try:
            code = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failed("it does not end") from None
        self.reader.join(5)
        os.close(self.keyboard)
        return code, self.said.decode(errors="replace")


def undisturbed(program, folder):
    """Its weights and how long it takes on as many ranks as there are at most."""
    config = folder / "c.toml"
    config.write_text(configuration(folder, STEPS, MORE))
    begin = time.monotonic()
    done = subprocess.run([program, "launch", "-np", str(RANKS[-1]), "train", config, "--quiet"], env=ENVIRONMENT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"an undisturbed run failed: {done.stdout}{done.stderr}")
    return weights_of(folder / "runs/run"), time.monotonic() - begin


def weights_of(run):
    latest = run / "checkpoints" / "latest"
    return (latest / "model.safetensors").read_bytes() + (latest / "optimizer.safetensors").read_bytes()


def by_ctrl_c(program, ranks, config, moment):
    terminal = Terminal([program, "launch", "-np", str(ranks), "train", config])
    if not terminal.begun.wait(30):
        raise Failed("it says nothing")
    time.sleep(moment)
    if terminal.process.poll() is None:
        terminal.press(b"\x03")
    return terminal.end()


def by_mpirun(program, ranks, config, moment):
    """Once its ranks listen, as docs/exit_codes.md has it."""
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), program, "train", config]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        said = process.stdout.readline()
        time.sleep(moment)
        process.send_signal(signal.SIGUSR1)
        said += process.communicate(timeout=SECONDS)[0]
    return process.returncode, said


def check_run(run, expected):
    if weights_of(run) != expected:
        raise Failed("it went on to other weights")
    for name in ("metrics.jsonl", "samples.jsonl"):
        steps = [json.loads(line)["step"] for line in (run / name).read_text().splitlines()]
        if steps != list(range(1, STEPS + 1)):
            raise Failed(f"{name} has not each step once: {steps[:5]} ... {steps[-5:]}")


def run_case(program, folder, number, seed, expected, seconds):
    draw = random.Random(f"{seed} {number}")
    ranks, how = draw.choice(RANKS), by_ctrl_c if draw.random() < 0.75 else by_mpirun
    moment = draw.uniform(0.0, seconds)
    config = folder / "c.toml"
    config.write_text(configuration(folder, STEPS, MORE))
    what = f"case {number}: {'Ctrl-C' if how is by_ctrl_c else 'SIGUSR1 to mpirun'}, {ranks} ranks, after {moment:.2f} s"
    code, said = None, ""
    try:
        code, said = how(program, ranks, config, moment)
        if traces := [trace for trace in TRACES if trace in said]:
            raise Failed(f"it says {traces[0]!r}")
        if code == 0:  # it was done before
            check_run(folder / "runs/run", expected)
            return what, "done", None
        if code != 75:
            raise Failed(f"it ended with {code}")
        again = subprocess.run([program, "launch", "-np", str(draw.choice(RANKS)), "train", config, "--quiet", "--resume"], env=ENVIRONMENT, capture_output=True, text=True, timeout=SECONDS)
        if again.returncode != 0:
            raise Failed(f"--resume ended with {again.returncode}: {again.stdout}{again.stderr}")
        check_run(folder / "runs/run", expected)
        return what, "saved", None
    except (Failed, OSError, ValueError, subprocess.TimeoutExpired) as failure:
        return what, "failed", "\n".join([str(failure), said[-2000:], *incidents(folder)])


def incidents(folder):
    """Where ranks were that did not come, for the folder goes."""
    return [f"{file.name}:\n{file.read_text()}" for file in sorted(folder.glob("runs/*/incident-*"))]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program", type=pathlib.Path)
    options.add_argument("--cases", type=int, default=200)
    options.add_argument("--minutes", type=float)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--case", type=int)
    given = options.parse_args()
    program = given.program.resolve()
    begin, counts = time.monotonic(), {"saved": 0, "done": 0, "failed": 0}
    with tempfile.TemporaryDirectory(prefix="onebatch-interrupts-") as scratch:
        folder = pathlib.Path(scratch)
        expected, seconds = undisturbed(program, folder)

        def one(number):
            if given.minutes and time.monotonic() > begin + given.minutes * 60:
                return None
            own = folder / f"case{number}"
            own.mkdir()
            result = run_case(program, own, number, given.seed, expected, seconds)
            shutil.rmtree(own)
            return result

        with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
            for result in pool.map(one, [given.case] if given.case is not None else range(given.cases)):
                if result is None:
                    continue
                what, outcome, failure = result
                counts[outcome] += 1
                if failure:
                    print(f"FAILED {what}: {failure}", flush=True)
    done = sum(counts.values())
    print(f"{done - counts['failed']} of {done} runs that were interrupted at a random moment lost nothing: {counts['saved']} saved, and went on to the same bits; {counts['done']} were done before")
    return 1 if counts["failed"] or counts["saved"] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
