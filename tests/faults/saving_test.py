#!/usr/bin/env python3
"""A checkpoint that is written beside the steps, slowly: training goes on, its end waits, and what all ranks have agreed on is finished."""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from common import *

CONFIG = """
[run]
max_steps = {{steps}}
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = 64
micro_batch_size = 16
[data]
kind = "idx"
path = "data/digits"
[model]
kind = "mlp"
hidden = [16]
[checkpoint]
every_steps = {{every}}
keep = 0
[verify]
at_start = false
[probe]
cache = false
max_val = 16
steps_per_trial = 1
[comm]
timeout_seconds = {{timeout}}
"""


def filled(scratch, steps, every, timeout=60):
    scratch.config.write_text(scratch.config.read_text().format(steps=steps, every=every, timeout=timeout))
    return scratch.runs / "run"


def saved(run_folder):
    return sorted(int(path.name[5:]) for path in run_folder.glob("checkpoints/step-*"))


def partial(run_folder):
    return [path.name for path in run_folder.glob("checkpoints/.*")]


def slowly(seconds, fault=""):
    return {"ONEBATCH_SLOW_WRITE": str(seconds), "ONEBATCH_FAULT": fault}


def check_whole(run_folder, step):
    """That train takes it for whole."""
    out = run(1, "eval", run_folder.parents[1] / "run.toml", "--set", "data.validation.kind=idx", "--set", "data.validation.path=data/digits", "--checkpoint", run_folder / "checkpoints" / f"step-{step}")
    check("validation loss" in out, f"step {step} is whole", out)


# Training goes on: the last step is done before the first checkpoint is there. Its end waits for that, and for its own.
for ranks in (1, 2):
    with Scratch(CONFIG) as s:
        folder = filled(s, steps=7, every=4)
        process = subprocess.Popen(command_line(ranks, ["train", s.config]), cwd=ROOT, env={**ENVIRONMENT, **slowly(4)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        metrics = folder / "metrics.jsonl"
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline and not (metrics.exists() and metrics.read_text().count("\n") >= 6):
            time.sleep(0.01)
        before = saved(folder)
        out = process.communicate(timeout=60)[0]
        check(before == [], f"{ranks} ranks: step 6 is done while the checkpoint of step 4 is written", str(before) + out)
        check(process.returncode == 0 and saved(folder) == [4, 7] and partial(folder) == [], "the end waits for both", out + str(saved(folder)))
        result = read_json(folder / "result.json")
        check(result["checkpoints_saved"] == 2 and result["checkpoint_waits"] == 1 and result["checkpoint_seconds"] > 2, "the second has waited for the first", str(result))
        check_whole(folder, 4)
        print(f"ok: {ranks} rank(s) train on while a checkpoint is written")

# A copy is what training had at its step: the same files as of a run that waits.
with Scratch(CONFIG) as s, Scratch(CONFIG) as t:
    files = []
    for scratch, background in ((s, "true"), (t, "false")):
        folder = filled(scratch, steps=9, every=1)
        run(2, "train", scratch.config, "--set", f"checkpoint.background={background}", "--set", "run.deterministic=bitwise")
        check(saved(folder) == list(range(1, 10)), f"background = {background}: every step", str(saved(folder)))
        files.append({step: (folder / "checkpoints" / f"step-{step}" / "manifest.json").read_text() for step in range(1, 10)})
    for step in range(1, 10):
        whole = [json.loads(each[step])["files"] for each in files]
        for name in ("model.safetensors", "optimizer.safetensors", "rank_generators.safetensors"):
            check(whole[0][name] == whole[1][name], f"{name} of step {step} is that of a run that waits")
    print("ok: the copies are those of their steps")

# What stays: the newest, and every fourth step's.
with Scratch(CONFIG) as s:
    folder = filled(s, steps=9, every=2)
    run(1, "train", s.config, "--set", "checkpoint.keep=1", "--set", "checkpoint.keep_every=4")
    check(saved(folder) == [4, 8, 9], "checkpoint.keep_every", str(saved(folder)))
    print("ok: every fourth step's checkpoint stays")

# A rank fails in the steps after: what was agreed on before is finished, and the failure is told as ever.
with Scratch(CONFIG) as s:
    folder = filled(s, steps=9, every=4)
    out = run(2, "train", s.config, environment=slowly(3, f"1 model 5 throw {s.path}/moment"), code=(1, 4))
    check("this was planned by a test (model)" in out and "rank 1" in out, "the failure is told", out)
    check(saved(folder) in ([4], [4, 5]) and partial(folder) == [], "the checkpoint of before is finished, and what the other rank had done may be saved", out + str(saved(folder)))
    check_whole(folder, 4)
    print("ok: a failing step does not cost the checkpoint that is being written")

# Even where nothing is left but the watchdog: it puts the end off.
with Scratch(CONFIG) as s:
    folder = filled(s, steps=9, every=4, timeout=4)
    out = run(2, "train", s.config, environment=slowly(7.3, f"1 step 5 stop {s.path}/moment"), code=4)
    check("its process is stopped" in out, "who is missing is told", out)
    check(saved(folder) in ([4], [4, 5]), "the checkpoint of before is finished", out + str(saved(folder)))
    print("ok: nor does a rank that is stopped")

# What fails beside the steps is told to all in the next one: none of the later steps counts.
with Scratch(CONFIG) as s:
    folder = filled(s, steps=400, every=4)
    out = run(2, "train", s.config, environment={"ONEBATCH_FAULT": f"0 write 8 throw {s.path}/moment"}, code=(1, 4))
    check("rank 0" in out and "this was planned by a test (write)" in out, "the failure is told", out)
    check(saved(folder)[0] == 4 and partial(folder) == [], "the older checkpoint stands", str(saved(folder)))
    check(all(8 <= step < 13 for step in saved(folder)[1:]), "of what the other rank has saved", str(saved(folder)))
    steps = len(read_json_lines(folder / "metrics.jsonl"))
    check(8 <= steps < 13, f"it is told before the next save: {steps} steps")
    print("ok: a failure in writing ends the run in the step after")
