"""Which samples train and validate: the same on any ranks and after a stop, and each counted once. Expected values come from the data's files."""
import collections
import gzip
import math
import pathlib
import random

import pytest

from program import ROOT, Scratch, read_json, read_json_lines, read_safetensors, relative_l2, settings, write_safetensors

SAMPLES = 1500  # of data/digits
MLP = """
[run]
epochs = 2
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = 67
[data]
kind = "idx"
path = "data/digits"
[data.validation]
fraction = 0.1
[model]
kind = "mlp"
hidden = [16]
[optimizer]
kind = "sgd"
lr = 0.1
[log]
samples = true
[probe]
max_val = 16
steps_per_trial = 1
[simulate]
devices = [{{slowdown = 1.0}}, {{slowdown = 2.0}}, {{slowdown = 1.5}}, {{slowdown = 1.2}}]
"""
WAYS = ("shuffle", "sequential", "balanced", "weighted")


def labels_of_digits():
    (path,) = pathlib.Path(ROOT / "data/digits").glob("train-labels-idx1-ubyte*")
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(raw[8:])


class Run(Scratch):
    def __init__(self, program, path, *pairs, text=MLP):
        super().__init__(path, text)
        self.program, self.settings = program, settings(*pairs)
        self.folder = self.runs / "run"

    def train(self, ranks, *arguments, code=0):
        return self.program.run(ranks, "train", self.config, *self.settings, *arguments, code=code)

    def samples(self):
        return [line["indices"] for line in read_json_lines(self.folder / "samples.jsonl")]

    def weights(self):
        return read_safetensors(self.folder / "checkpoints/latest/model.safetensors")


@pytest.fixture
def run(onebatch, tmp_path):
    def make(name, *pairs, **more):
        (tmp_path / name).mkdir()
        return Run(onebatch, tmp_path / name, *pairs, **more)

    return make


@pytest.fixture
def pairs_of(tmp_path):
    """What a way of sampling needs."""
    weights = tmp_path / "weights.txt"
    weights.write_text("\n".join(str(i % 5) for i in range(SAMPLES)))
    return lambda way: [f"data.sampling={way}", *([f"data.sample_weights={weights}"] if way == "weighted" else [])]


@pytest.mark.parametrize("way", WAYS)
def test_one_and_three_ranks_use_the_same_samples(run, pairs_of, way):
    alone, three = run("alone", *pairs_of(way)), run("three", *pairs_of(way))
    alone.train(1)
    three.train(3)
    assert three.samples() == alone.samples()
    assert relative_l2(three.weights(), alone.weights()) < 1e-5
    epoch = sum(alone.samples()[: math.ceil(1350 / 67)], [])
    assert len(epoch) == 1350
    if way == "weighted":
        assert all(i % 5 for i in epoch), "samples of weight 0 never come"
    if way == "sequential":
        assert epoch == sorted(epoch)
    if way in ("shuffle", "sequential"):
        assert len(set(epoch)) == 1350
        assert set(sum(alone.samples()[math.ceil(1350 / 67) :], [])) == set(epoch), "the same ones in every epoch"


def test_each_digit_has_its_part_and_the_rest_is_kept_for_validation(run):
    whole = collections.Counter(labels_of_digits())
    made = run("run", "run.epochs=1")
    made.train(1, "--json", made.path / "result.json")
    train = set(sum(made.samples(), []))
    labels = labels_of_digits()
    for digit, count in collections.Counter(labels[i] for i in train).items():
        assert abs(count - 0.9 * whole[digit]) <= 1
    out = made.program.run(1, "eval", made.config, "--checkpoint", made.folder)
    assert "over 150 samples" in out


def test_balanced_digits_come_equally_often(run, tmp_path):
    """Few of some digits. In 20 epochs each comes in a tenth of the draws: chi-square with 9 degrees of freedom, above 27.9 in one of a thousand."""
    labels = labels_of_digits()
    chosen = [i for i, digit in enumerate(labels) if digit % 2 == 0 or i % 7 == 0]
    (tmp_path / "chosen.txt").write_text(" ".join(map(str, chosen)))
    made = run("run", "run.epochs=20", "data.sampling=balanced", f"data.subset={tmp_path}/chosen.txt", "data.validation.fraction=0")
    made.train(1)
    drawn = sum(made.samples(), [])
    assert len(drawn) == 20 * len(chosen) and set(drawn) <= set(chosen)
    counts, expected = collections.Counter(labels[i] for i in drawn), len(drawn) / 10
    assert sum((counts[digit] - expected) ** 2 / expected for digit in range(10)) < 27.9


@pytest.mark.parametrize("way", ("shuffle", "weighted"))
def test_stopped_in_mid_epoch_it_goes_on_with_the_same_samples(run, pairs_of, way):
    whole = run("whole", *pairs_of(way), "run.max_steps=27", "run.epochs=3")
    whole.config.write_text(whole.config.read_text().replace("epochs = 2", "max_steps = 27"))
    whole.settings = settings(*pairs_of(way))
    whole.train(1)
    parts = run("parts")
    parts.config.write_text(parts.config.read_text().replace("epochs = 2", ""))
    parts.settings = settings(*pairs_of(way), "run.max_steps=9")
    parts.train(1)
    parts.settings = settings(*pairs_of(way), "run.max_steps=27")
    parts.train(3, "--resume")
    assert parts.samples() == whole.samples()
    assert relative_l2(parts.weights(), whole.weights()) < 1e-5


@pytest.mark.parametrize("changed, said", (
    ("data.sampling=balanced", "the checkpoint has data.sampling = shuffle, not balanced"),
    ("data.fraction=0.5", "the checkpoint has data.fraction = 1.0, not 0.5"),
    ("data.validation.fraction=0.2", "the checkpoint has data.validation.fraction = 0.1, not 0.2"),
))  # fmt: skip
def test_a_checkpoint_of_other_samples_is_refused(run, changed, said):
    made = run("run", "run.epochs=1")
    made.train(1)
    made.settings += settings(changed)
    assert said in made.train(1, "--resume", code=2)


def test_other_weights_in_the_same_file_are_refused(run, tmp_path):
    weights = tmp_path / "w.txt"
    weights.write_text("1\n" * SAMPLES)
    made = run("run", "run.epochs=1", "data.sampling=weighted", f"data.sample_weights={weights}")
    made.train(1)
    weights.write_text("1\n" * (SAMPLES - 1) + "2\n")
    assert "what data.subset and data.sample_weights hold = " in made.train(1, "--resume", code=2)


@pytest.mark.parametrize("pairs, said", (
    (["data.sampling=weighted"], "data.sample_weights: is needed"),
    (["data.sample_weights=w.txt"], 'belongs to data.sampling = "weighted"'),
    (["data.subset=a.txt", "data.fraction=0.5"], "data.subset: stands beside data.fraction"),
    (["data.validation.path=elsewhere"], "data.validation.path: stands beside data.validation.fraction"),
    (["data.fraction=0"], "data.fraction: write"),
    (["data.sampling=random"], 'write "shuffle" or "sequential" or "balanced" or "weighted"'),
    (["data.subset=/nonexistent/a.txt"], 'data.subset = "/nonexistent/a.txt" cannot be read'),
))  # fmt: skip
def test_what_cannot_be_is_said_before_anything_is_computed(run, pairs, said):
    assert said in run("run", *pairs).train(1, code=2)


def cross_entropy(weights, hidden, inputs, label):
    """Of the perceptron, by its definition: loss, and whether it is right."""
    def layer(name, values):
        wide = len(values)
        rows = [weights[f"{name}.weight"][i * wide : (i + 1) * wide] for i in range(len(weights[f"{name}.bias"]))]
        return [sum(w * x for w, x in zip(row, values)) + b for row, b in zip(rows, weights[f"{name}.bias"])]

    outputs = layer("layer1", [max(0.0, value) for value in layer("layer0", inputs)])
    top = max(outputs)
    return top + math.log(sum(math.exp(value - top) for value in outputs)) - outputs[label], outputs.index(top) == label


@pytest.mark.parametrize("size", (1, 2, 3, 5, 7, 13, 31))
def test_validation_counts_each_sample_once_on_any_ranks(run, onebatch, tmp_path, size):
    """Sizes that no number of ranks divides. A sample that counted twice, as padding does, would be in loss and accuracy."""
    draw = random.Random(size)
    for name, count in (("train", 24), ("validation", size)):
        values = [draw.uniform(-1, 1) * (1 + 5 * (i == 3 * count - 1)) for i in range(3 * count)]
        write_safetensors(tmp_path / f"{name}.safetensors", x=("F32", [count, 3], values), y=("I64", [count], [draw.randrange(3) for _ in range(count)]))
    text = MLP.replace('kind = "idx"\npath = "data/digits"', f'kind = "safetensors"\npath = "{tmp_path}/train.safetensors"')
    text = text.replace("fraction = 0.1", f'path = "{tmp_path}/validation.safetensors"').replace("global_batch_size = 67", "global_batch_size = 8")
    made = run("run", "model.num_classes=3", "run.epochs=1", text=text)
    made.train(1)
    tensors, weights = read_safetensors(tmp_path / "validation.safetensors"), made.weights()
    each = [cross_entropy(weights, 16, tensors["x"][3 * i : 3 * i + 3], tensors["y"][i]) for i in range(size)]
    for ranks in (1, 2, 3, 4):
        file = tmp_path / f"eval-{ranks}.json"
        onebatch.run(ranks, "eval", made.config, *made.settings, "--checkpoint", made.folder, "--json", file)
        found = read_json(file)
        assert found["samples"] == size
        assert found["validation_loss"] == pytest.approx(sum(loss for loss, _ in each) / size, rel=1e-5)
        assert found["validation_accuracy"] == pytest.approx(sum(right for _, right in each) / size)


def test_a_safetensors_file_can_be_split(run, tmp_path):
    write_safetensors(tmp_path / "d.safetensors", x=("F32", [24, 3], [i / 72 for i in range(72)]), y=("I64", [24], [i % 3 for i in range(24)]))
    text = MLP.replace('kind = "idx"\npath = "data/digits"', f'kind = "safetensors"\npath = "{tmp_path}/d.safetensors"').replace("0.1", "0.25", 1)
    made = run("run", "batch.global_batch_size=8", text=text)
    made.train(1)
    train = set(sum(made.samples(), []))
    assert len(train) == 18
    assert collections.Counter(i % 3 for i in train) == {0: 6, 1: 6, 2: 6}


def test_validation_by_another_split_than_the_runs_is_said(onebatch, tmp_path):
    run = Run(onebatch, tmp_path, "run.epochs=1", "run.seed=2")
    run.train(1)
    checkpoint = ("--checkpoint", run.folder / "checkpoints/latest")
    words = "may be some that the checkpoint's run has trained with"
    for command, more in (("eval", ()), ("predict", ("--out", tmp_path / "out.safetensors", "--force"))):
        assert words not in onebatch.run(1, command, run.config, *settings("run.seed=2"), *checkpoint, *more)
        said = onebatch.run(1, command, run.config, *checkpoint, *more)
        assert words in said and "the checkpoint has run.seed = 2, not 1" in said
