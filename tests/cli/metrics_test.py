"""A validation's metrics against scikit-learn's definitions, on the outputs that Python computes from the run's own weights: on any ranks, under uneven plans."""
import json
import math
import random
from fractions import Fraction

import numpy as np
import pytest

from program import SGD_IN_FLOAT64, read_json, read_json_lines, read_safetensors, settings, write_safetensors

RANKS = pytest.mark.parametrize("ranks", (1, 2, 3))
WIDTH = 5
HIDDEN = 8
CONFIG = """
[run]
epochs = 1
output_dir = "{folder}/runs"
name = "run"
[batch]
global_batch_size = 41
[data]
kind = "safetensors"
path = "{folder}/train.safetensors"
[data.validation]
path = "{folder}/validation.safetensors"
[model]
kind = "mlp"
hidden = [8]
{model}
[probe]
steps_per_trial = 1
[simulate]
devices = [{{slowdown = 1.0}}, {{slowdown = 3.0}}, {{slowdown = 1.7}}]
""" + SGD_IN_FLOAT64
CLASSES = 7
ALL_OF_CLASSES = ["top_1", "top_2", "top_5", "f1_macro", "f1_per_class", "confusion_matrix", "perplexity"]


def normal(draw, rows, width):
    return [[draw.gauss(0.0, 1.0) for _ in range(width)] for _ in range(rows)]


def flat(rows):
    return [value for row in rows for value in row]


def class_data(seed, rows):
    """No label is 5, some are ignored; what the inputs say of the label is little."""
    draw = random.Random(seed)
    labels = [draw.choice((0, 1, 2, 3, 4, 6, 6, 6, -100)) for _ in range(rows)]
    inputs = [[value + (label % WIDTH == place) for place, value in enumerate(row)] for row, label in zip(normal(draw, rows, WIDTH), labels)]
    return inputs, labels


def number_data(seed, rows):
    """Three outputs: one around 0, one far from 0, one that is always the same. In order, so that ranks have unlike means."""
    draw = random.Random(seed)
    inputs = normal(draw, rows, WIDTH)
    targets = sorted([sum(row) + draw.gauss(0.0, 0.3), 1e8 + row[0], 4.25] for row in inputs)
    weights = [[draw.choice((0.0, 0.5, 1.0, 3.0))] * 3 for _ in inputs]
    return inputs, targets, weights


def forward(weights, inputs):
    """An mlp of one hidden layer, in float64."""
    layer = {name: np.array(values) for name, values in weights.items()}
    hidden = np.maximum(0.0, np.array(inputs) @ layer["layer0.weight"].reshape(HIDDEN, WIDTH).T + layer["layer0.bias"])
    return hidden @ layer["layer1.weight"].reshape(-1, HIDDEN).T + layer["layer1.bias"]


def f1_scores(labels, predicted, classes):
    """2 TP / (2 TP + FP + FN), 0 where there is nothing to divide by: f1_score(average=None, labels=range(classes), zero_division=0)."""
    right = [sum(y == p == c for y, p in zip(labels, predicted)) for c in range(classes)]
    both = [labels.count(c) + predicted.count(c) for c in range(classes)]
    return [2 * r / b if b else 0.0 for r, b in zip(right, both)], both


def class_metrics(outputs, labels, classes=CLASSES):
    """As accuracy_score, top_k_accuracy_score, f1_score, confusion_matrix and exp(log_loss) have them, without the labels that are ignored."""
    kept = [i for i, label in enumerate(labels) if label != -100]
    outputs, labels = outputs[kept], [labels[i] for i in kept]
    predicted = outputs.argmax(1).tolist()
    places = [int((row > row[label]).sum()) for row, label in zip(outputs, labels)]
    scores, both = f1_scores(labels, predicted, classes)
    found = {"accuracy": sum(y == p for y, p in zip(labels, predicted)) / len(labels)}
    found |= {f"top_{k}": sum(place < k for place in places) / len(labels) for k in (1, 2, 5)}
    found["f1_macro"] = sum(scores) / sum(count > 0 for count in both)
    found |= {f"f1_class_{c}": score for c, score in enumerate(scores)}
    found["confusion_matrix"] = [[sum(y == a and p == b for y, p in zip(labels, predicted)) for b in range(classes)] for a in range(classes)]
    shifted = outputs - outputs.max(1, keepdims=True)
    entropies = np.log(np.exp(shifted).sum(1)) - shifted[range(len(labels)), labels]
    found["perplexity"] = math.exp(math.fsum(entropies) / len(labels))
    return found


def r2(targets, outputs, weights):
    """r2_score of one output, in exact arithmetic."""
    y, p, w = ([Fraction(float(value)) for value in column] for column in (targets, outputs, weights))
    mean = sum(a * b for a, b in zip(w, y)) / sum(w)
    around = sum(a * (b - mean) ** 2 for a, b in zip(w, y))
    errors = sum(a * (b - c) ** 2 for a, b, c in zip(w, y, p))
    return float(1 - errors / around) if around else float(errors == 0)


def number_metrics(outputs, targets, weights):
    """mean_absolute_error and r2_score with sample_weight, both the mean over outputs."""
    columns = list(zip(np.array(targets).T, outputs.T, np.array(weights).T))
    errors = [math.fsum(w * abs(y - p)) / math.fsum(w) for y, p, w in columns]
    return {"mean_absolute_error": sum(errors) / len(errors), "r2": sum(r2(*column) for column in columns) / len(columns)}


def check(found, expected, tolerance=1e-12):
    for name, value in expected.items():
        if name == "confusion_matrix":
            assert found[name] == value
        else:
            assert found[name] == pytest.approx(value, rel=tolerance, abs=tolerance), name


@pytest.fixture
def write(tmp_path):
    def config(text, model="", **sets):
        for name, (inputs, *rest) in sets.items():
            columns = {"x": ("F64", [len(inputs), WIDTH], flat(inputs))}
            for column, values in zip(("y", "w"), rest):
                nested = isinstance(values[0], list)
                columns[column] = ("F64" if nested else "I64", [len(values), 3] if nested else [len(values)], flat(values) if nested else values)
            write_safetensors(tmp_path / f"{name}.safetensors", **columns)
        path = tmp_path / "run.toml"
        path.write_text(CONFIG.format(folder=tmp_path, model=model) + text)
        return path

    return config


@pytest.fixture
def classes(write):
    return write("""
[loss]
label_smoothing = 0.1
class_weights = [1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 0.25]
""", train=class_data(1, 211), validation=class_data(2, 157))


@pytest.fixture
def numbers(write):
    return write("""
[loss]
kind = "mse"
""", "num_classes = 3", train=number_data(3, 83), validation=number_data(4, 101))


def trained_weights(folder):
    return read_safetensors(next((folder / "runs/run/checkpoints").glob("step-*")) / "model.safetensors")


def names(metrics):
    return settings("run.metrics=" + json.dumps(metrics))


def test_a_step_in_which_nothing_counts_has_no_loss(onebatch, write, tmp_path):
    inputs, labels = class_data(5, 82)
    config = write("", train=(inputs, [*(label if label >= 0 else 0 for label in labels[:41]), *[-100] * 41]), validation=class_data(2, 50))
    onebatch.run(2, "train", config, *settings('data.sampling="sequential"'), "--json", tmp_path / "result.json")
    first, second = read_json_lines(tmp_path / "runs/run/metrics.jsonl")
    assert first["loss"] > 0 and not first["skipped"]
    assert second["loss"] is None and second["skipped"]
    assert read_json(tmp_path / "result.json")["train_loss"] is None


def test_the_formulas_of_this_test_are_those_of_scikit_learn():
    """Stored: what scikit-learn 1.9.1 gave for these."""
    rows = np.array([[2, 1, 0, 0, 0], [0, 3, 1, 0, 0], [1, 0, 2, 0, 3], [0, 0, 4, 1, 2], [0, 1, 0, 0, 5], [1, 3, 0, 2, 0], [0, 2, 1, 0, 1],
                     [3, 0, 2, 1, 0], [0, 0, 1, 0, 2], [2, 0, 0, 0, 1], [0, 0, 1, 0, 0], [5, 1, 0, 0, 2]], dtype=float)
    found = class_metrics(rows, [0, 1, 2, 2, 4, 0, 1, 2, 4, 4, 2, 0], 5)
    assert found["confusion_matrix"] == [[2, 1, 0, 0, 0], [0, 2, 0, 0, 0], [1, 0, 2, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 2]]
    check(found, {"accuracy": 0.6666666666666666, "top_2": 0.9166666666666666, "f1_macro": 0.67619047619047612, "f1_class_0": 0.5714285714285714,
                  "f1_class_1": 0.8, "f1_class_3": 0.0, "f1_class_4": 0.66666666666666663, "perplexity": 2.3598110087226565}, 1e-15)
    targets = [[3, -0.5, 1], [2, 0.25, 1], [7, 4, 1], [-1, 2, 1], [0.5, 8, 1]]
    outputs = np.array([[2.5, 0, 1], [2.25, 0.5, 1], [8, 3, 1], [-2, 2.5, 1], [0, 7, 1.5]])
    check(number_metrics(outputs, targets, [[1] * 3] * 5), {"mean_absolute_error": 0.46666666666666673, "r2": 0.62508644031478877}, 1e-15)
    weights = [[w] * 3 for w in (1, 2, 0.5, 1, 3)]
    check(number_metrics(outputs, targets, weights), {"mean_absolute_error": 0.46666666666666662, "r2": 0.62062688343479577}, 1e-15)


@RANKS
def test_metrics_of_classes_are_those_of_the_whole_set(onebatch, classes, tmp_path, ranks):
    out = onebatch.run(ranks, "train", classes, "--json", tmp_path / "result.json", *names(ALL_OF_CLASSES))
    inputs, labels = class_data(2, 157)
    expected = class_metrics(forward(trained_weights(tmp_path), inputs), labels)
    line = read_json_lines(tmp_path / "runs/run/validation.jsonl")[-1]
    check(line, expected)
    assert list(line)[5:9] == ["samples", "loss", "accuracy", "top_1"] and line["samples"] == 157
    result = read_json(tmp_path / "result.json")
    check(result["validation_metrics"], {name: value for name, value in expected.items() if name != "accuracy"})
    assert read_json(tmp_path / "runs/run/result.json")["validation_metrics"] == result["validation_metrics"]
    assert f", top_2 {100 * expected['top_2']:.2f} %, " in out and f", f1_macro {expected['f1_macro']:.4g}" in out
    assert "f1_class" not in out and "confusion" not in out


@RANKS
def test_eval_gives_them_too_on_any_ranks(onebatch, classes, tmp_path, ranks):
    onebatch.run(2, "train", classes)
    out = onebatch.run(ranks, "eval", classes, "--checkpoint", tmp_path / "runs/run", "--json", tmp_path / "eval.json", *names(ALL_OF_CLASSES))
    inputs, labels = class_data(2, 157)
    expected = class_metrics(forward(trained_weights(tmp_path), inputs), labels)
    document = read_json(tmp_path / "eval.json")
    check(document["validation_metrics"] | {"accuracy": document["validation_accuracy"]}, expected)
    assert "f1_class_5 0.0000\n" in out and "true class: how often which was predicted\n" in out


@RANKS
def test_metrics_of_numbers_are_those_of_the_whole_set_far_from_zero_too(onebatch, numbers, tmp_path, ranks):
    onebatch.run(ranks, "train", numbers, *settings("optimizer.lr=1e-18", 'data.weights="w"'))
    inputs, targets, weights = number_data(4, 101)
    expected = number_metrics(forward(trained_weights(tmp_path), inputs), targets, weights)
    line = read_json_lines(tmp_path / "runs/run/validation.jsonl")[-1]
    assert list(line)[6:] == ["loss", "mean_absolute_error", "r2"]  # that is what there is of numbers where nothing is said
    check(line, expected)
    assert abs(expected["r2"]) > 1e12  # nothing of the second output is explained, and its targets are close together
    onebatch.run(ranks, "eval", numbers, "--checkpoint", tmp_path / "runs/run", "--json", tmp_path / "eval.json", *settings('data.weights="w"'))
    check(read_json(tmp_path / "eval.json")["validation_metrics"], expected)


def test_r2_of_a_model_that_explains_something(onebatch, numbers, tmp_path):
    sets = settings("model.num_classes=1", "run.epochs=30", "optimizer.lr=0.02", 'optimizer.kind="adamw"')
    inputs, targets, _ = number_data(4, 101)
    near = {"x": ("F64", [101, WIDTH], flat(inputs)), "y": ("F64", [101, 1], [row[0] for row in targets])}
    for name in ("train", "validation"):
        write_safetensors(tmp_path / f"{name}.safetensors", **near)
    onebatch.run(2, "train", numbers, *sets)
    line = read_json_lines(tmp_path / "runs/run/validation.jsonl")[-1]
    outputs = forward(trained_weights(tmp_path), inputs)
    check(line, number_metrics(outputs, [[row[0]] for row in targets], [[1.0]] * 101))
    assert 0.1 < line["r2"] < 1.0


def test_without_any_asked_for_classes_have_their_accuracy_alone(onebatch, classes, tmp_path):
    out = onebatch.run(1, "train", classes)
    assert list(read_json_lines(tmp_path / "runs/run/validation.jsonl")[-1])[5:] == ["samples", "loss", "accuracy"]
    assert "validation after epoch 1: loss" in out
    onebatch.run(1, "eval", classes, "--checkpoint", tmp_path / "runs/run", "--json", tmp_path / "eval.json")
    assert read_json(tmp_path / "eval.json")["validation_metrics"] == {}


def test_the_usual_ones_can_be_left_out(onebatch, numbers, tmp_path):
    onebatch.run(1, "train", numbers, *names(["loss"]), *settings("optimizer.lr=1e-18"))
    assert list(read_json_lines(tmp_path / "runs/run/validation.jsonl")[-1])[6:] == ["loss"]


@pytest.mark.parametrize("metrics, words", (
    (["top5"], '"top5" is no metric: write a list of metrics, of "top_K" (as "top_5"), "f1_macro"'),
    (["f1_macro", "f1_macro"], '"f1_macro" stands there twice'),
    ([], "write a list of metrics"),
    ([5], "write a list of metrics"),
    (["r2"], '"r2" does not belong to loss.kind = "cross_entropy": write some of "loss", "accuracy", "top_K"'),
    (["top_7"], '"top_7" of 7 classes is 1 whatever the model does: write "top_6" or less'),
))
def test_what_cannot_be_had_is_refused_with_what_can(onebatch, classes, metrics, words):
    out = onebatch.run(1, "train", classes, *names(metrics), code=2)
    assert words in out and "run.metrics" in out


def test_numbers_have_no_accuracy(onebatch, numbers):
    out = onebatch.run(2, "train", numbers, *names(["accuracy"]), code=2)
    assert '"accuracy" does not belong to loss.kind = "mse": write some of "loss", "mean_absolute_error" and "r2"' in out


def test_each_may_be_watched(onebatch, classes, tmp_path):
    out = onebatch.run(2, "train", classes, *names(["top_2", "perplexity"]), *settings("checkpoint.keep_best.metric=top_2", "run.early_stopping.metric=perplexity"))
    best = read_json(tmp_path / "runs/run/checkpoints/best.json")
    assert best["metric"] == "top_2" and best["value"] == read_json_lines(tmp_path / "runs/run/validation.jsonl")[best["step"] // 6 - 1]["top_2"], out


def test_those_of_numbers_may_be_watched(onebatch, numbers, tmp_path):
    onebatch.run(1, "train", numbers, *settings("checkpoint.keep_best.metric=r2", "run.early_stopping.metric=mean_absolute_error", "optimizer.lr=1e-18"))
    assert read_json(tmp_path / "runs/run/checkpoints/best.json")["metric"] == "r2"


def test_lists_by_class_end_somewhere(onebatch, classes):
    for name in ("f1_per_class", "confusion_matrix"):
        out = onebatch.run(1, "train", classes, *names([name]), *settings("model.num_classes=1025"), code=2)
        assert f'"{name}" is for 1024 classes at most, and there are 1025: write "f1_macro"' in out
