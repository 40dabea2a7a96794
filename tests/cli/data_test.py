#!/usr/bin/env python3
"""What data may hold that cannot be trained: each said before the first step, or, where it may be meant, named when it does harm."""
import math
import random
import struct

from common import *

MLP = """
[run]
max_steps = 4
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = 8
micro_batch_size = 4
[data]
kind = "safetensors"
path = "{runs}/../data.safetensors"
[model]
kind = "mlp"
hidden = [5]
[probe]
steps_per_trial = 1
"""
TYPES = {"F32": "f", "F64": "d", "I64": "q"}


def write(path, **tensors):
    """name = (dtype, shape, values)."""
    header, raw = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}{TYPES[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(raw), len(raw) + len(packed)]}
        raw += packed
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw)


random.seed(3)
X = ("F32", [24, 3], [random.uniform(-1, 1) for _ in range(72)])
LABELS = [i % 3 for i in range(24)]
ONES = [1.0] * 24


def changed(values, **places):
    values = list(values)
    for place, value in places.items():
        values[int(place[1:])] = value
    return values


with Scratch(MLP) as s:
    data, validation = s.path / "data.safetensors", s.path / "validation.safetensors"
    other = ("--set", f"data.validation.path={validation}")

    def train(*more, code=0, ranks=1, y=LABELS, x=X, **tensors):
        write(data, x=x, y=("I64", [24], y), **tensors)
        return run(ranks, "train", s.config, *more, "--set", "checkpoint.resume=never", code=code)

    def refused(what, words, *more, **options):
        out = train(*more, code=2, **options)
        check(all(word in out for word in words), what, out)
        check("step" not in out, f"{what}: before any step", out)

    # Labels.
    refused("a label of -100 is no class of -99", ['sample 5 of data.target "y" holds the label -100', "loss.ignore_index = -100"], "--set", "loss.ignore_index=-1", y=changed(LABELS, _5=-100), ranks=2)
    refused("a negative label", ['sample 7 of data.target "y" holds the label -1', "loss.ignore_index = -1"], y=changed(LABELS, _7=-1))
    refused("more labels than classes", ['sample 9 of data.target "y" holds the label 3', "only 3 classes, 0 … 2", "model.num_classes = 4"], "--set", "model.num_classes=3", y=changed(LABELS, _9=3))
    refused("the largest label of all", ["holds the label 9223372036854775807", "2^31 classes at most"], y=changed(LABELS, _2=2**63 - 1))
    train("--set", "loss.ignore_index=255", "--quiet", y=changed(LABELS, _5=255, _6=255))
    folder = sorted(s.runs.glob("run*"), key=lambda path: path.stat().st_mtime)[-1]
    weights = next((folder / "checkpoints").glob("step-*")) / "model.safetensors"
    length, = struct.unpack("<Q", weights.read_bytes()[:8])
    header = json.loads(weights.read_bytes()[8:8 + length])
    check(header["layer1.weight"]["shape"] == [3, 5], "an ignored label is no class", str(header))

    # The validation set's are looked at before the training too.
    write(validation, x=X, y=("I64", [24], changed(LABELS, _11=4)))
    refused("a validation label without a class", ['sample 11 of data.target "y" holds the label 4', "only 3 classes"], *other)

    # Targets and weights.
    write(data, x=X, y=("F32", [24], ONES))
    out = run(1, "train", s.config, code=2)
    check('data.target "y" holds floating-point numbers' in out and 'loss.kind = "mse"' in out, "numbers are no classes", out)
    check("loss.kind needs a target: write data.target" in run(1, "train", s.config, "--set", 'data.target=""', code=2), "no target")
    with_weights = ("--set", "data.weights=w")
    for value, said in ((-0.5, "-0.5"), (math.nan, "nan"), (math.inf, "inf")):
        refused(f"a weight of {said}", [f'sample 13 of data.weights "w" holds {said}', "finite numbers from 0"], *with_weights, w=("F64", [24], changed(ONES, _13=value)))
    refused("weights of another shape", ["of the target's shape"], *with_weights, w=("F64", [24, 1], ONES))

    # Sizes that no memory holds, in files of no length: refused, not counted through.
    refused("as many samples as bytes in a terabyte, of nothing", ["[1099511627776, 0] holds no values"], "--set", "data.target=z", z=("I64", [2**40, 0], []))
    refused("inputs of nothing", ['tensor x [24, 0] holds no values'], x=("F32", [24, 0], []))

    # What is not finite may be meant, until it does harm: then the sample is named, not an operator.
    for value, said in ((math.nan, "NaN"), (math.inf, "an infinity"), (-math.inf, "an infinity")):
        out = train("--set", "run.max_steps=3", x=("F32", [24, 3], changed(X[2], _52=value)), code=1, ranks=2)
        check(f'sample 17 of data.inputs "x" holds {said}' in out, f"{value} in the input is called one", out)
    out = train("--set", "run.max_steps=3", x=("F64", [24, 3], changed(X[2], _52=1e300)), code=1)
    check('sample 17 of data.inputs "x" holds a number that is too large for Float' in out, "a number beyond float32", out)
print("data that cannot be trained are named")
