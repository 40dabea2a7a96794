#!/usr/bin/env python3
"""Runs that are interrupted (a rank killed, SIGUSR1 to mpirun, SIGTERM and SIGINT without it) and resumed on the same and on other ranks and batches."""
import random
import shutil
import signal
import struct
import time

from common import *

# Slow enough to be interrupted in the middle: 30 steps of about 40 ms.
SLOW = """
[run]
epochs = {{epochs}}
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = {{batch}}
[data]
kind = "idx"
path = "data/digits"
[data.validation]
[model]
kind = "resnet"
depth = 8
stem = "cifar"
[batch_norm]
frozen = {{frozen}}
[optimizer]
kind = "sgd"
lr = 0.02
momentum = 0.9
[schedule]
kind = "cosine"
[checkpoint]
every_steps = 4
keep = 0
[log]
samples = true
[probe]
max_val = 32
steps_per_trial = 1
[precision]
compute = "{{precision}}"
parameters = "{{precision}}"
[simulate]
devices = [{{{{slowdown = 1.0}}}}, {{{{slowdown = 1.5}}}}, {{{{slowdown = 1.2}}}}, {{{{slowdown = 1.0}}}}]
"""
STEPS = 30


def fill(scratch, precision="float32", frozen="false", batch=257, epochs=5):
    scratch.config.write_text(scratch.config.read_text().format(precision=precision, frozen=frozen, batch=batch, epochs=epochs))


def read_safetensors(path):
    """name -> list of floats, from the format's definition."""
    raw = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    letters = {"F32": "f", "F64": "d", "I64": "q"}
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        data = raw[8 + length + begin:8 + length + end]
        letter = letters[entry["dtype"]]
        tensors[name] = struct.unpack(f"<{len(data) // struct.calcsize(letter)}{letter}", data)
    return tensors


def relative_l2(a, b):
    error = sum((x - y) ** 2 for k in b for x, y in zip(a[k], b[k]))
    return (error / sum(y * y for k in b for y in b[k])) ** 0.5


def last_checkpoint(scratch):
    return (scratch.runs / "run" / "checkpoints" / f"step-{STEPS}")


def wait_for_step(process, scratch, step):
    metrics = scratch.runs / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.exists() and metrics.read_text().count("\n") >= step:
            return
        time.sleep(0.01)
    check(False, f"step {step} was not reached", process.communicate()[0])


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def interrupt(scratch, ranks, how, step):
    """Starts a run and interrupts it after so many steps; returns exit code, output and how long the end took."""
    process = subprocess.Popen(command_line(ranks, ["train", scratch.config]), cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for_step(process, scratch, step)
    if how == "kill":
        os.kill(random.choice(children(process.pid)), signal.SIGKILL)
    else:
        process.send_signal(how)
    begin = time.monotonic()
    output = process.communicate(timeout=60)[0]
    return process.returncode, output, time.monotonic() - begin


def expect_same_samples(a, b):
    check(read_json_lines(a / "run" / "samples.jsonl") == read_json_lines(b / "run" / "samples.jsonl"), "the same samples in each step")


random.seed(int(time.time()))
seed = random.randrange(10**6)
random.seed(seed)
print("seed", seed)

for ranks, how in ((2, "kill"), (3, signal.SIGUSR1), (1, signal.SIGTERM), (1, signal.SIGINT)):
    with Scratch(SLOW) as whole, Scratch(SLOW) as broken:
        fill(whole)
        fill(broken)
        step = random.randint(5, STEPS - 8)
        code, output, seconds = interrupt(broken, ranks, how, step)
        check(seconds < 10, f"{how} on {ranks} ranks: the end took {seconds:.1f} s", output)
        if how == "kill":
            check(code not in (0, 75) and ("signal 9" in output), f"a killed rank: code {code}", output)
        else:
            check(code == 75 and "; to go on" in output and "--resume\n" in output, f"{how} on {ranks} ranks returned {code}", output)
        left = [p.name for p in (broken.runs / "run" / "checkpoints").iterdir() if "partial" in p.name]
        check(how == "kill" or left == [], "no half checkpoint", str(left))
        # The interrupted run's plan is part of what is bit-identical: the uninterrupted run must have the same one.
        (whole.runs / "run" / "checkpoints").mkdir(parents=True)
        out = run(ranks, "train", broken.config, "--resume")
        check("goes on" in out and "resumed from" in out, "resumed", out)
        resumed = read_safetensors(last_checkpoint(broken) / "model.safetensors")
        broken_state = read_json(last_checkpoint(broken) / "state.json")
        # Step 0 of the same plan: train from a checkpoint of the broken run's beginning, that nobody interrupted.
        first = broken.runs / "run" / "checkpoints" / "step-4"
        shutil.copytree(first, whole.runs / "run" / "checkpoints" / "step-4")
        (whole.runs / "run" / "config.toml").write_text("")
        run(ranks, "train", whole.config, "--resume")
        uninterrupted = read_safetensors(last_checkpoint(whole) / "model.safetensors")
        check(resumed == uninterrupted, f"{how} on {ranks} ranks after step {step}: resumed is the uninterrupted run, bit for bit")
        check(broken_state["consumed_samples"] == read_json(last_checkpoint(whole) / "state.json")["consumed_samples"] == 7500, "consumed_samples")
        steps = [line["step"] for line in read_json_lines(broken.runs / "run" / "metrics.jsonl")]
        check(steps == list(range(1, STEPS + 1)), "metrics.jsonl has each step once", str(steps))
        print(f"ok: {how} after step {step} on {ranks} rank(s), bit-identical")

for precision, tolerance in (("float32", 1e-4), ("float64", 1e-10)):
    with Scratch(SLOW) as whole, Scratch(SLOW) as broken:
        fill(whole, precision, "true")
        fill(broken, precision, "true")
        run(1, "train", whole.config, "--quiet")
        code, output, _ = interrupt(broken, 2, signal.SIGUSR1, random.randint(5, STEPS - 8))
        check(code == 75, f"SIGUSR1 returned {code}", output)
        out = run(3, "train", broken.config, "--resume")
        check("have changed since" in out, "another number of ranks is said", out)
        error = relative_l2(read_safetensors(last_checkpoint(broken) / "model.safetensors"), read_safetensors(last_checkpoint(whole) / "model.safetensors"))
        check(error <= tolerance, f"2 then 3 ranks in {precision}: relative L2 {error:.1e}, at most {tolerance}")
        expect_same_samples(whole.runs, broken.runs)
        print(f"ok: 1 rank, and 2 then 3 ranks in {precision}: relative L2 of the weights {error:.1e}")

# Another global batch: the same order of samples goes on.
with Scratch(SLOW) as s:
    fill(s)
    code, output, _ = interrupt(s, 2, signal.SIGUSR1, 7)
    check(code == 75, f"SIGUSR1 returned {code}", output)
    run(1, "train", s.config, "--resume", "--set", "batch.global_batch_size=100", "--quiet")
    lines = read_json_lines(s.runs / "run" / "samples.jsonl")
    for epoch in range(5):
        seen = [i for line in lines for i in line["indices"]][epoch * 1500:(epoch + 1) * 1500]
        check(sorted(seen) == list(range(1500)), f"epoch {epoch} has every sample once over the change of the batch")
# By time: 30 steps of some 60 ms, on ranks whose clocks need not agree.
for minutes, ranks in ((0.005, 2), (0.005, 1), (0, 2)):
    with Scratch(SLOW) as s:
        fill(s)
        run(ranks, "train", s.config, "--quiet", "--set", "checkpoint.every_steps=0", "--set", f"checkpoint.every_minutes={minutes}")
        saved = sorted(int(p.name.split("-")[1]) for p in (s.runs / "run" / "checkpoints").iterdir() if p.name.startswith("step-"))
        seconds = [line["step_seconds"] for line in read_json_lines(s.runs / "run" / "metrics.jsonl")]
        check(saved[-1] == STEPS and (len(saved) > 1) == (minutes > 0), f"every {minutes} minutes: saved after {saved} of steps of {sum(seconds) / STEPS:.3f} s")
        for first, second in zip(saved, saved[1:-1]):
            check(sum(seconds[first:second]) >= 60 * minutes * 0.5, f"saved after {first} and {second} already", str(seconds))
print("interrupted runs go on")
