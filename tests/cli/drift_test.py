#!/usr/bin/env python3
"""One device becomes three times slower in mid-run: a new plan, the same samples and weights. How soon and how good: bench/living_plan.py."""
import math
import struct

from common import *

CHANGE = 40  # the step from which on rank 0 is slow
LAST = 120
TEXT = '''
[run]
max_steps = {steps}
output_dir = "{{runs}}"
name = "{name}"
[batch]
global_batch_size = 256
[data]
kind = "synthetic"
shape = [512]
size = 2048
[model]
kind = "mlp"
hidden = [1024, 1024]
[optimizer]
kind = "sgd"
lr = 0.05
momentum = 0.9
[precision]
parameters = "float64"
compute = "float64"
[checkpoint]
resume = "never"
[log]
samples = true
[simulate]
devices = [{{{{slowdown = 2.0{changes}}}}}, {{{{slowdown = 2.0}}}}]
'''


def weights(run_dir):
    """All parameters of the last checkpoint in one list, read without a library."""
    newest = max((run_dir / "checkpoints").glob("step-*"), key=lambda folder: int(folder.name[5:]))
    data = (newest / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    body = data[8 + length:]
    return struct.unpack(f"<{len(body) // 8}d", body)


def train(name, changes, *more):
    with Scratch(TEXT.format(name=name, changes=changes, steps=LAST)) as s:
        output = run(2, "train", s.config, "--json", s.path / "r.json", *more, environment={"OMP_NUM_THREADS": "1"}, seconds=300)
        lines = [json.loads(line) for line in (s.runs / name / "metrics.jsonl").read_text().splitlines()]
        return output, read_json(s.path / "r.json"), lines, (s.runs / name / "samples.jsonl").read_text(), weights(s.runs / name), [line["plan"] for line in lines]


_, _, _, samples, expected, _ = train("steady", "")
output, result, lines, changed_samples, found, plans = train("drift", f", changes = [{{{{step = {CHANGE}, slowdown = 6.0}}}}]")
check(changed_samples == samples, "the samples of every step are the same")
difference = math.sqrt(sum((a - b) ** 2 for a, b in zip(expected, found)) / sum(a * a for a in expected))
check(len(found) == len(expected) and difference <= 1e-10, f"the weights are the same: relative L2 {difference:.1e}")
check("a new one: the devices' speeds have changed" in output, "the reason is said", output)
check(plans[-1] > plans[CHANGE - 2] and result["replans"] >= 1, "there is a new plan", str(result) + output)
print(f"weights within {difference:.1e}, {result['replans']} new plan(s)")

# With BatchNorm the result would change: it is said, and done only when asked for.
RESNET = TEXT.replace("shape = [512]", "shape = [3, 8, 8]").replace('kind = "mlp"\nhidden = [1024, 1024]', 'kind = "resnet"\ndepth = 8\nstem = "cifar"')
RESNET = RESNET.replace("{steps}", "60").replace("size = 2048", "size = 256").replace("global_batch_size = 256", "global_batch_size = 64")
for more, expect_plan in (((), False), (("--set", 'batch.replan="always"'), True)):
    with Scratch(RESNET.format(name="norm", changes=", changes = [{{step = 20, slowdown = 9.0}}]")) as s:
        output = run(2, "train", s.config, "--json", s.path / "r.json", *more, environment={"OMP_NUM_THREADS": "1"}, seconds=200)
        replans = read_json(s.path / "r.json")["replans"]
        check((replans > 0) == expect_plan, f"replan {more}: {replans} new plans", output)
        if not expect_plan:
            check('write batch.replan = "always"' in output, "the drift is said", output)
print("a drift is followed where that leaves the result as it is")
