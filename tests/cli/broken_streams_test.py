#!/usr/bin/env python3
"""What people are told cannot be written: the run goes on to the weights of an undisturbed one, and the loss is said once where it can be."""
from common import *

SETTINGS = ['run.deterministic="bitwise"', "batch.micro_batch_size=20", "run.max_steps=8", "log.every_steps=1", "simulate.devices=[{slowdown = 1.0}, {slowdown = 2.0}]"]
NOTE = "what it cannot take is lost"
# Probes that cannot be kept are warned of on standard error.
COMPLAINING = {**ENVIRONMENT, "XDG_CACHE_HOME": "/proc/nowhere"}


def command(s, name, ranks):
    pairs = [f"run.name={name}", *SETTINGS]
    return command_line(ranks, ["train", s.config, *(word for pair in pairs for word in ("--set", pair))])


def weights(s, name):
    return (s.runs / name / "checkpoints" / "latest" / "model.safetensors").read_bytes()


def train_in_shell(s, name, ranks, redirection):
    """In a shell, which can close a stream; returns what is left to read."""
    words = "exec \"$@\" " + redirection
    done = subprocess.run(["bash", "-c", words, "bash", *command(s, name, ranks)], cwd=ROOT, env=COMPLAINING, capture_output=True, text=True, timeout=120)
    check(done.returncode == 0, f"{redirection} on {ranks} rank(s) returned {done.returncode}", done.stdout + done.stderr)
    return done.stdout, done.stderr


def train_into_closed_pipe(s, name, broken):
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **{stream: writer for stream in broken}}
    process = subprocess.Popen(command(s, name, 1), cwd=ROOT, env=COMPLAINING, text=True, **streams)
    os.close(writer)
    out, error = process.communicate(timeout=120)
    check(process.returncode == 0, f"a closed pipe for {broken} returned {process.returncode}", f"{out}{error}")
    return out or "", error or ""


ALONE = {"2>/dev/full": (1, 0), "2>&-": (1, 0), ">/dev/full": (0, 1), ">&-": (0, 1), ">/dev/full 2>&1": (0, 0), "<&- >&- 2>&-": (0, 0)}
with Scratch() as s:
    out, error = train_in_shell(s, "whole", 1, "")
    check(NOTE not in out + error and "probe.cache" in error and "step 8/8" in out, "an undisturbed run", out + error)
    whole = weights(s, "whole")

    for number, (redirection, notes) in enumerate(ALONE.items()):
        name = f"alone-{number}"
        out, error = train_in_shell(s, name, 1, redirection)
        check((out.count(NOTE), error.count(NOTE)) == notes, f"{redirection}: the loss is said once", out + error)
        check(weights(s, name) == whole, f"{redirection} changes the weights")
        check(("done: 8 steps" in out) == (notes[0] == 1), f"{redirection}: what can be written is", out)

    for number, broken in enumerate((("stdout",), ("stderr",), ("stdout", "stderr"))):
        name = f"pipe-{number}"
        out, error = train_into_closed_pipe(s, name, broken)
        check((out + error).count(NOTE) == (1 if len(broken) == 1 else 0), f"a closed pipe for {broken} is said once", out + error)
        check(weights(s, name) == whole, f"a closed pipe for {broken} changes the weights")

    # Under mpirun each rank writes into mpirun's pipes.
    for number, redirection in enumerate(("2>/dev/full", "2>&-", ">/dev/full")):
        train_in_shell(s, f"ranks-{number}", 2, redirection)
        check(weights(s, f"ranks-{number}") == whole, f"{redirection} on 2 ranks changes the weights")

    # Nothing of a closed stream's goes into the files of the run; documents that were asked for still fail loudly.
    for file in sorted((s.runs / "alone-5").rglob("*.json")):
        read_json(file)
    done = subprocess.run([*command(s, "document", 1), "--json", s.path / "nowhere" / "result.json"], cwd=ROOT, env=COMPLAINING, capture_output=True, text=True, timeout=120)
    check(done.returncode == 1 and "nowhere/result.json" in done.stderr, f"a document that cannot be written returned {done.returncode}", done.stderr)

    # Text that was asked for, and no run.
    done = subprocess.run(["bash", "-c", f"{PROGRAM} --help >/dev/full"], env=COMPLAINING, capture_output=True, text=True, timeout=60)
    check(done.returncode == 0 and done.stderr.count(NOTE) == 1, f"--help into a full disk returned {done.returncode}", done.stderr)
print("broken streams end no run")
