#!/usr/bin/env python3
"""Exact BatchNorm keeps something of every sample of a share: plans leave room for it, or it goes to host memory."""
from common import *

RESNET = """
[run]
max_steps = 3
output_dir = "{runs}"
[batch]
global_batch_size = 256
[model]
kind = "resnet"
depth = 20
stem = "cifar"
[data]
kind = "synthetic"
shape = [3, 8, 8]
size = 1024
[data.validation]
[precision]
compute = "float64"
parameters = "float64"
[batch_norm]
mode = "exact"
[probe]
cache = false
steps_per_trial = 1
"""

with Scratch(RESNET) as s:

    def train(name, memories, offload, *more, code=0):
        devices = ", ".join(f'{{memory = "{mebibytes}MiB"}}' for mebibytes in memories)
        return run(2, "train", s.config, "--set", f"run.name={name}", "--set", f"simulate.devices=[{devices}]", "--set", f'memory.offload="{offload}"', "--json", s.path / f"{name}.json", *more, code=code)

    roomy = train("roomy", (400, 400), "auto")
    check("host memory" not in roomy, "what has room stays on the device", roomy)

    tight = train("tight", (28, 80), "never")
    check("ran out of memory" not in tight and "host memory" not in tight, "the plan leaves room for what is kept", tight)
    ranks = read_json(s.runs / "tight" / "profile.json")["ranks"]
    shares = read_json(s.runs / "tight" / "plan.json")["ranks"]
    for rank, share in zip(ranks, shares):
        memory = rank["memory"]
        largest = max(size for size, _ in share["micro_batches"])
        takes = share["samples"] * memory["kept_bytes_per_sample"] + largest * memory["activation_bytes_per_sample"]
        check(0 < takes <= rank["room_bytes"] < rank["memory_limit_bytes"], f"rank {share['rank']} has room for its share", tight)
    check(max(size for size, _ in shares[0]["micro_batches"]) < ranks[0]["max_micro_batch"], "the share has made micro-batches smaller", tight)

    offloaded = train("offloaded", (18, 18), "auto")
    check("rank 0's share on its device; did in host memory" in offloaded, "what has no room goes to host memory, which is said", offloaded)
    check(all(rank["kept_in_host"] for rank in read_json(s.runs / "offloaded" / "plan.json")["ranks"]), "the plan says where", offloaded)
    refused = train("refused", (18, 18), "never", code=3)
    check("exact BatchNorm keeps something of every sample" in refused and "memory.offload" in refused, "without host memory it does not fit", refused)

    losses = {name: read_json(s.path / f"{name}.json")["validation_loss"] for name in ("roomy", "tight", "offloaded")}
    for name in ("tight", "offloaded"):
        check(abs(losses[name] - losses["roomy"]) <= 1e-9 * losses["roomy"], f"{name}: the same run", str(losses))
    resumed = train("offloaded", (18, 18), "auto", "--resume", "--set", "run.max_steps=5")
    check("ran out of memory" not in resumed and "did in host memory" not in resumed, "a resumed run keeps things where its plan says", resumed)
print("what exact BatchNorm keeps has its place in the plan")
