#!/usr/bin/env python3
"""Where BatchNorm makes a plan a part of the result: how its micro-batches are, what is said, and that the same plan comes again."""
import ctypes
import ctypes.util
import re
import signal
import time

from common import *

RESNET = """
[run]
max_steps = 4
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = 200
[data]
kind = "idx"
path = "data/digits"
[model]
kind = "resnet"
depth = 8
stem = "cifar"
[optimizer]
kind = "sgd"
lr = 0.02
[probe]
cache = false
steps_per_trial = 1
[simulate]
devices = [{{slowdown = 1.0}}, {{slowdown = 3.0}}]
"""


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def rewrite(checkpoint, state):
    """Another state under a manifest that is true of it."""
    xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash"))
    xxhash.XXH3_128bits.argtypes, xxhash.XXH3_128bits.restype = [ctypes.c_char_p, ctypes.c_size_t], Hash128
    text = json.dumps(state).encode()
    (checkpoint / "state.json").write_bytes(text)
    digest = xxhash.XXH3_128bits(text, len(text))
    manifest = read_json(checkpoint / "manifest.json")
    manifest["files"]["state.json"] = {"bytes": len(text), "checksum": f"{digest.high:016x}{digest.low:016x}"}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


def sizes(plan):
    return [[tuple(run) for run in rank["micro_batches"]] for rank in plan["ranks"]]


def weights(s, name):
    return (s.runs / name / "checkpoints" / "latest" / "model.safetensors").read_bytes()


def settings(*pairs):
    return [word for pair in pairs for word in ("--set", pair)]


with Scratch(RESNET) as s:
    out = run(2, "train", s.config, "--set", "probe.max_val=30", "--set", "checkpoint.every_steps=2")
    plan = read_json(s.runs / "run" / "plan.json")
    flat = [size for rank in sizes(plan) for size, _ in rank]
    check(min(flat) >= 15 and max(flat) <= 30, "no small micro-batch beside large ones", str(plan))
    for rank in sizes(plan):
        check(max(size for size, _ in rank) - min(size for size, _ in rank) <= 1, "micro-batches of a rank are alike", str(plan))
    said = re.findall(r"BatchNorm takes its statistics from each micro-batch \(of \d+ to \d+ samples\).*--plan", out)
    check(len(said) == 1, "that the plan is part of the result is said once", out)

    # The same plan on a machine that would make another one: --plan repeats the run, bit for bit.
    slower = settings("run.name=other", "simulate.devices=[{slowdown = 3.0}, {slowdown = 1.0}]")
    other = run(2, "plan", s.config, *slower, "--json", s.path / "other.json")
    check(sizes(read_json(s.path / "other.json")) != sizes(plan), "it would make another one", other)
    out = run(2, "train", s.config, *slower, "--plan", s.runs / "run" / "plan.json")
    check("the plan is that of" in out and "rank 0 was" in out and "and is" in out, "devices that differ are named", out)
    check(sizes(read_json(s.runs / "other" / "plan.json")) == sizes(plan) and weights(s, "other") == weights(s, "run"), "the plan is repeated, and so is the run", out)
    check("probe of every rank" not in out, "nothing is probed for it", out)
    out = run(2, "verify", s.config, "--plan", s.runs / "run" / "plan.json", code=5)
    check("the plan is that of" in out and "BatchNorm is local" in out, "verify looks at that plan", out)

    # What is not of this world is refused by name.
    file = s.runs / "run" / "plan.json"
    check("plan.json is for 2 rank(s), but 1 were started" in run(1, "train", s.config, "--plan", file, code=2), "another world")
    check("is for a global batch of 200, but batch.global_batch_size is 100" in run(2, "train", s.config, "--plan", file, "--set", "batch.global_batch_size=100", code=2), "another batch")
    check("but batch.micro_batch_size is 8" in run(2, "verify", s.config, "--plan", file, "--set", "batch.micro_batch_size=8", code=2), "other sizes")
    bad = dict(plan, ranks=[dict(plan["ranks"][0], samples=plan["ranks"][0]["samples"] + 1), *plan["ranks"][1:]])
    (s.path / "bad.json").write_text(json.dumps(bad))
    check("add up to its samples" in run(2, "train", s.config, "--plan", s.path / "bad.json", code=2), "sums that are wrong")
    check("no such file" in run(2, "train", s.config, "--plan", s.path / "none.json", code=2), "a file that is not there")
    tight = settings("run.name=tight", 'simulate.devices=[{memory = "3MiB"}, {memory = "3MiB"}]')
    one = dict(plan, ranks=[dict(plan["ranks"][0], samples=200, micro_batches=[[200, 1]], micro_batch_seconds=[1.0]), dict(plan["ranks"][1], samples=0, micro_batches=[], micro_batch_seconds=[])])
    (s.path / "one.json").write_text(json.dumps(one))
    check("micro-batches of 200 do not fit on rank 0" in run(2, "train", s.config, *tight, "--plan", s.path / "one.json", code=3), "a plan that does not fit")
    check(sorted(path.name for path in s.runs.iterdir() if path.name.startswith("run")) == ["run"], "refused starts leave nothing")

    # A checkpoint whose checksums hold is read with the same eyes: half of each batch is never left out.
    checkpoint = s.runs / "run" / "checkpoints" / "step-4"
    alone = ("--set", f"checkpoint.resume={checkpoint}", "--set", "run.max_steps=5", "--set", "batch_norm.frozen=true")
    state = read_json(checkpoint / "state.json")
    rewrite(checkpoint, dict(state, world_size=1, devices=state["devices"][:1]))
    out = run(1, "train", s.config, *alone, "--set", "run.name=whole")
    check("the run's plan is for 2 rank(s), but 1 were started: probing and planning anew" in out, "a plan for two ranks in a world of one", out)
    check([rank["samples"] for rank in read_json(s.runs / "whole" / "plan.json")["ranks"]] == [200], "all of the batch is used", out)
    for key, value in (("step", 3.7), ("step", 2**63), ("step", -5), ("global_batch_size", 0), ("world_size", 2**40), ("world_size", 3)):
        rewrite(checkpoint, dict(state, **{key: value}))
        out = run(2, "train", s.config, *alone, "--set", "run.name=odd", code=2)
        check("state.json" in out and ("must be a whole number" in out or "names 2 devices of 3 rank(s)" in out), f"{key} = {value} is refused", out)

# A fixed micro-batch stays, and what it leaves over is said; so is a plan without a preference.
with Scratch(RESNET) as s:
    out = run(1, "plan", s.config, "--set", "batch.micro_batch_size=66")
    check("statistics of as few as 2 samples" in out and "[batch] fixes" in out, "a small remainder is said", out)
    out = run(1, "plan", s.config, "--set", "probe.max_val=11", "--json", s.path / "p.json")
    check(sizes(read_json(s.path / "p.json")) == [[(10, 10), (11, 9)]] or min(size for size, _ in sizes(read_json(s.path / "p.json"))[0]) == 10, "what memory allows", out)
    check("statistics of as few as 10 samples" in out and "memory does not hold more" in out, "what cannot be kept is said", out)
    check("statistics of" not in run(1, "plan", s.config, "--set", "probe.max_val=11", "--set", "batch_norm.min_micro_batch_size=1"), "1 asks for nothing")
    check("statistics" not in run(1, "plan", s.config, "--set", "batch_norm.frozen=true"), "frozen statistics are no part of it")

# Killed before its first checkpoint: a fresh process, on a machine whose speeds have changed, has the same plan.
with Scratch(RESNET) as s:
    process = subprocess.Popen(command_line(2, ["train", s.config, "--set", "run.max_steps=100000"]), cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    metrics = s.runs / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)  # mpirun; its ranks follow
    process.communicate()
    while subprocess.run(["pgrep", "-f", str(s.config)], capture_output=True).returncode == 0:
        time.sleep(0.1)
    before = read_json(s.runs / "run" / "plan.json")
    (s.runs / "run" / "profile.json").unlink()
    out = run(2, "train", s.config, "--resume")
    check("begins again there" in out and read_json(s.runs / "run" / "plan.json") == before, "the plan comes again", out)
    check("probe of every rank" not in out and sorted(path.name for path in s.runs.iterdir()) == ["run"], "without a probe, in the same folder", out)
print("plans come again")
