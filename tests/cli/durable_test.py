#!/usr/bin/env python3
"""Every file of a checkpoint, and its folder, is on the disk before it has its name; the folder that it lies in, thereafter. What the disk
has altered by then never has it."""
from common import *

with Scratch() as s:
    log = s.path / "syncs"
    settings = ("--quiet", "--set", "run.max_steps=4", "--set", "checkpoint.every_steps=2", "--set", "checkpoint.keep=0")
    run(2, "train", s.config, *settings, environment={"ONEBATCH_TEST_SYNCS": str(log)})
    events = [line.rstrip("\n").split("\t") for line in log.read_text().splitlines()]
    checkpoints = s.runs / "run" / "checkpoints"

    def synced(path, begin, end):
        return ["sync", str(path)] in events[begin:end]

    check(synced(s.runs / "run", 0, len(events)), "the folder of the run, which has a new folder in it")
    for step in (2, 4):
        folder, partial = checkpoints / f"step-{step}", checkpoints / f".step-{step}.partial"
        named = events.index(["rename", str(partial), str(folder)])
        files = sorted(path.name for path in folder.iterdir())
        check(len(files) >= 5 and "state.json" in files, "a checkpoint's files", str(files))
        for file in files:
            # The manifest is written under another name itself.
            check(synced(partial / file, 0, named) or synced(partial / f"{file}.partial", 0, named), f"{file} of step {step} is not synced before it counts", str(events))
        check(synced(partial, 0, named), f"the folder of step {step} is not synced before it counts", str(events))
        check(synced(checkpoints, named, len(events)), f"the name of step {step} is not synced", str(events))

for name in ("model.safetensors", "state.json", "manifest.json.partial"):
    for ranks in (1, 2):
        with Scratch() as s:
            environment = {"ONEBATCH_TEST_FLIP": f".step-4.partial/{name}"}
            out = run(ranks, "train", s.config, *settings, environment=environment, code=(1, 4))
            check(f".step-4.partial/{name.removesuffix('.partial')} is not what was written" in out, f"{name}: the altered file is named", out)
            check("rank 0" in out or ranks == 1, "and the rank that wrote it", out)
            left = sorted(path.name for path in (s.runs / "run" / "checkpoints").iterdir())
            check(left == ["latest", "step-2"], f"{name}: the checkpoint before it stands", str(left))
print("checkpoints are on the disk")
