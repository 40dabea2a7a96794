#!/usr/bin/env python3
"""Numbers that are not finite end a run before they are kept, and name their operator; a loss scale goes on where a checkpoint left it."""
import struct

from common import *


def tensors(path):
    """name -> floats of a safetensors file, those of float32."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    data = raw[8 + length:]
    return {name: struct.unpack(f"<{(e['data_offsets'][1] - e['data_offsets'][0]) // 4}f", data[slice(*e["data_offsets"])])
            for name, e in header.items() if name != "__metadata__" and e["dtype"] == "F32"}


def settings(**pairs):
    return [word for key, value in pairs.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


RESNET = DIGITS_MLP.replace('kind = "mlp"\nhidden = [64, 48]', 'kind = "resnet"\ndepth = 8\nstem = "cifar"')
for text, operator in ((DIGITS_MLP, "aten::"), (RESNET, "aten::conv2d")):
    with Scratch(text) as s:
        out = run(2, "train", s.config, "--quiet", *settings(optimizer__lr="1e30"), code=1)
        check("the gradient is not finite" in out and operator in out and ", after layer" in out, "the operator is named", out)
        saved = sorted((s.runs / "run" / "checkpoints").glob("step-*"))
        check(len(saved) == 1, "the last good weights are saved", out)
        state = read_json(saved[0] / "state.json")
        check(state["consumed_samples"] == 257 * state["step"], "what was not used is not counted as used", str(state))
        values = tensors(saved[0] / "model.safetensors")
        check(len(values) > 3 and all(abs(v) < float("inf") for tensor in values.values() for v in tensor), "what is saved is finite, running statistics too")

# The scale goes on from a checkpoint. Not so far that a plan decides whether a micro-batch overflows.
with Scratch(DIGITS_MLP.replace("epochs = 3\n", "")) as s:
    half = settings(precision__compute="float16", precision__loss_scale_growth_steps=2)
    sequences = []
    for name, parts in (("whole", [10]), ("parts", [5, 10])):
        for steps in parts:
            run(2, "train", s.config, "--quiet", "--resume", *half, *settings(run__name=name, run__max_steps=steps))
        sequences.append([(line["loss_scale"], line["skipped"]) for line in read_json_lines(s.runs / name / "metrics.jsonl")])
    check(len(sequences[0]) == 10 and sequences[0] == sequences[1], "a resumed run has the scales of the uninterrupted one", str(sequences))
    check(max(scale for scale, _ in sequences[0]) >= 65536 * 16, "the scale grows", str(sequences[0]))
    out = run(2, "train", s.config, "--quiet", *half, *settings(run__name="pure", run__max_steps=1, precision__parameters="float16", precision__master_weights="false"))
    check("without master weights are likely to end in NaN" in out, "16-bit parameters without masters are warned of", out)
print("numbers stay finite, or it is said where they did not")
