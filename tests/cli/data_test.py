"""What data may hold that cannot be trained: each said before the first step, or, where it may be meant, named when it does harm."""
import gzip
import math
import random
import shutil

import pytest

from program import ROOT, Scratch, read_safetensors, settings, write_safetensors

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
[checkpoint]
resume = "never"
"""
VALUES = [random.Random(3).uniform(-1, 1) for _ in range(72)]
LABELS = [i % 3 for i in range(24)]
ONES = [1.0] * 24


def changed(values, place, value):
    return [*values[:place], value, *values[place + 1 :]]


def inputs(values=VALUES, dtype="F32"):
    return dtype, [24, 3], values


def labels(values=LABELS):
    return "I64", [24], values


@pytest.fixture
def scratch(tmp_path):
    return Scratch(tmp_path, MLP)


@pytest.fixture
def train(onebatch, scratch):
    """Trains on 24 samples of which a test changes some."""

    def run(*pairs, code=0, ranks=1, x=inputs(), y=labels(), **more):
        write_safetensors(scratch.path / "data.safetensors", x=x, y=y, **more)
        return onebatch.run(ranks, "train", scratch.config, *settings(*pairs), code=code)

    return run


@pytest.fixture
def refused(train):
    """Says all of `words` before any step."""

    def run(words, *pairs, **options):
        out = train(*pairs, code=2, **options)
        assert [word for word in words if word not in out] == [], out
        assert "step 1/" not in out

    return run


def test_a_label_of_minus_100_is_no_class_of_minus_99(refused):
    refused(['sample 5 of data.target "y" holds the label -100', "loss.ignore_index = -100"], "loss.ignore_index=-1", y=labels(changed(LABELS, 5, -100)), ranks=2)


def test_a_negative_label_is_refused(refused):
    refused(['sample 23 of data.target "y" holds the label -1'], "data.validation.fraction=0.25", y=labels(changed(LABELS, 23, -1)))
    refused(['sample 7 of data.target "y" holds the label -1', "loss.ignore_index = -1"], y=labels(changed(LABELS, 7, -1)))


def test_a_label_beyond_the_classes_is_refused(refused):
    refused(['sample 9 of data.target "y" holds the label 3', "only 3 classes, 0 … 2", "model.num_classes = 4"], "model.num_classes=3", y=labels(changed(LABELS, 9, 3)))


def test_the_largest_label_of_all_is_refused(refused):
    refused(["holds the label 9223372036854775807", "2^31 classes at most"], y=labels(changed(LABELS, 2, 2**63 - 1)))


def test_an_ignored_label_is_no_class(train, scratch):
    train("loss.ignore_index=255", y=labels(changed(changed(LABELS, 5, 255), 6, 255)))
    weights = read_safetensors(scratch.runs / "run" / "checkpoints" / "latest" / "model.safetensors")
    assert len(weights["layer1.weight"]) == 3 * 5
    assert len(weights["layer1.bias"]) == 3


def test_a_validation_label_without_a_class_is_refused_before_the_training(refused, scratch):
    validation = scratch.path / "validation.safetensors"
    write_safetensors(validation, x=inputs(), y=labels(changed(LABELS, 11, 4)))
    refused(['sample 11 of data.target "y" holds the label 4', "only 3 classes"], f"data.validation.path={validation}")


def test_a_run_does_not_go_on_over_other_values(train, scratch, onebatch):
    def resume(code=0):
        return onebatch.run(1, "train", scratch.config, "--resume", *settings("run.max_steps=6"), code=code)

    file = scratch.path / "data.safetensors"
    train("checkpoint.every_steps=2")
    before = file.read_bytes()
    for name, change in (("x", {"x": inputs(changed(VALUES, 71, 0.25))}), ("y", {"y": labels(changed(LABELS, 23, 0))})):
        write_safetensors(file, **{"x": inputs(), "y": labels(), **change})
        said = resume(code=2)
        assert "the training data's digest" in said and "hold something else than they did" in said, name
    # The same values in another order of tensors, beside one that nobody reads: the same data.
    write_safetensors(file, y=labels(), unread=("F32", [1], [1.0]), x=inputs())
    assert file.read_bytes() != before
    assert "resumed from" in resume()


def test_nor_over_other_labels_of_images(onebatch, tmp_path):
    shutil.copytree(ROOT / "data/digits", tmp_path / "digits")
    packed = tmp_path / "digits/train-labels-idx1-ubyte.gz"
    labels, file = bytearray(gzip.decompress(packed.read_bytes())), packed.with_suffix("")
    scratch = Scratch(tmp_path, MLP.replace('"safetensors"', '"idx"').replace("data.safetensors", "digits"))
    onebatch.run(1, "train", scratch.config, *settings("checkpoint.every_steps=2"))
    packed.unlink()
    for label, code in ((labels[-1], 0), (1 - min(labels[-1], 1), 2)):
        file.write_bytes(labels[:-1] + bytes([label]))
        said = onebatch.run(1, "train", scratch.config, "--resume", *settings("run.max_steps=6"), code=code)
        assert ("the training data's digest" in said) == (code == 2), said


def test_a_conversion_that_was_stopped_is_no_data(onebatch, scratch):
    folder = scratch.path / "data.safetensors"  # whatever its name
    folder.mkdir()
    write_safetensors(folder / "piece-00000.safetensors", x=inputs(), y=labels())
    (folder / ".convert-plan.json").write_text("{}")
    assert "the same convert command goes on" in onebatch.run(1, "train", scratch.config, code=2)
    (folder / "convert.json").write_text("{}")
    onebatch.run(1, "train", scratch.config)


def test_numbers_are_no_classes(refused):
    refused(['data.target "y" holds floating-point numbers', 'loss.kind = "mse"'], y=("F32", [24], ONES))


def test_a_loss_needs_a_target(refused):
    refused(["loss.kind needs a target: write data.target"], 'data.target=""')


@pytest.mark.parametrize("value, said", ((-0.5, "-0.5"), (math.nan, "nan"), (math.inf, "inf")))
def test_a_weight_that_is_none_is_refused(refused, value, said):
    refused([f'sample 13 of data.weights "w" holds {said}', "finite numbers from 0"], "data.weights=w", w=("F64", [24], changed(ONES, 13, value)))


def test_weights_of_another_shape_are_refused(refused):
    refused(["of the target's shape"], "data.weights=w", w=("F64", [24, 1], ONES))


def test_as_many_samples_as_bytes_in_a_terabyte_of_nothing_are_not_counted_through(refused):
    refused(["[1099511627776, 0] holds no values"], "data.target=z", z=("I64", [2**40, 0], []))


def test_inputs_of_nothing_are_refused(refused):
    refused(["tensor x [24, 0] holds no values"], x=("F32", [24, 0], []))


# What is not finite may be meant, until it does harm: then the sample is named, not an operator.
@pytest.mark.parametrize("value, said", ((math.nan, "NaN"), (math.inf, "an infinity"), (-math.inf, "an infinity")))
def test_an_input_that_is_not_finite_is_named_when_it_does_harm(train, value, said):
    assert f'sample 17 of data.inputs "x" holds {said}' in train("run.max_steps=3", x=inputs(changed(VALUES, 52, value)), code=1, ranks=2)


def test_an_input_beyond_float32_is_named_when_it_does_harm(train):
    out = train("run.max_steps=3", x=inputs(changed(VALUES, 52, 1e300), "F64"), code=1)
    assert 'sample 17 of data.inputs "x" holds a number that is too large for Float' in out
