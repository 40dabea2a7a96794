"""Image files with augmentation, resumed in mid-epoch with another number of data workers and of ranks: the same samples, pixels and weights."""
import pytest

from image_folders import CONFIG, MIXED, make_images
from program import Scratch, read_safetensors, relative_l2, settings

# Epochs of 4 steps (30 samples, 8 each): stopped after the second step of the second epoch, and on into the third.
STOPPED, STEPS = 6, 11
TEXTS = {"changed": CONFIG, "mixed": MIXED}
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


class Runs:
    """Of one configuration and one folder of images."""

    def __init__(self, onebatch, path, text, *changes):
        self.onebatch, self.changes = onebatch, changes
        make_images(path / "images")
        text = text.replace("global_batch_size = 8", "global_batch_size = 8\nmicro_batch_size = 2")
        self.scratch = Scratch(path, text + "[log]\nsamples = true\n")

    def train(self, name, ranks, workers, steps, *changes, like=None, resume=False):
        """`like`: another, whose plan it follows."""
        plan = ["--plan", self.scratch.runs / like / "plan.json"] if like else []
        pairs = settings(f"run.name='{name}'", f"data.workers={workers}", f"run.max_steps={steps}", 'batch.replan="never"', "comm.overlap=false", *self.changes, *changes)
        return self.onebatch.run(ranks, "train", self.scratch.config, *pairs, *plan, *(["--resume"] if resume else []), environment=ONE_THREAD)

    def samples(self, name):
        return (self.scratch.runs / name / "samples.jsonl").read_text()

    def bits(self, name):
        return self.file(name).read_bytes()

    def difference(self, name, other):
        return relative_l2(read_safetensors(self.file(name)), read_safetensors(self.file(other)))

    def file(self, name):
        return self.scratch.runs / name / "checkpoints/latest/model.safetensors"


def test_images_that_have_moved_are_another_runs(onebatch, tmp_path):
    """In the order of their names, another sample has each number after it."""
    runs = Runs(onebatch, tmp_path, CONFIG)
    runs.train("run", 1, 0, 2)
    (tmp_path / "images/cow/5.png").rename(tmp_path / "images/ant/00.png")
    out = onebatch.run(1, "train", runs.scratch.config, "--resume", *settings("run.name='run'", "run.max_steps=4"), code=2)
    assert "is of another run" in out and "the training data's digest" in out
    (tmp_path / "images/ant/00.png").rename(tmp_path / "images/cow/5.png")
    runs.train("run", 1, 0, 4, resume=True)


def said_so(output):
    return "resumed from" in output and f"step-{STOPPED}" in output


@pytest.mark.parametrize("text", TEXTS)
def test_other_workers_and_the_same_plan_train_the_same_bits(onebatch, tmp_path, text):
    runs = Runs(onebatch, tmp_path, TEXTS[text])
    runs.train("whole", 2, 0, STEPS)
    runs.train("parts", 2, 4, STOPPED, like="whole")
    assert said_so(runs.train("parts", 2, 1, STEPS, like="whole", resume=True))
    assert runs.samples("parts") == runs.samples("whole")
    assert runs.bits("parts") == runs.bits("whole")


@pytest.mark.parametrize("text", TEXTS)
def test_other_ranks_train_the_same_but_for_the_order_of_sums(onebatch, tmp_path, text):
    runs = Runs(onebatch, tmp_path, TEXTS[text])
    runs.train("whole", 1, 0, STEPS)
    for ranks, workers in ((3, 2), (2, 0)):
        name = f"on{ranks}"
        runs.train(name, 1, 4, STOPPED)
        assert said_so(runs.train(name, ranks, workers, STEPS, resume=True))
        assert runs.samples(name) == runs.samples("whole")
        assert runs.difference(name, "whole") < 1e-13
    # and the random changes are in it
    runs.train("plain", 1, 0, STEPS, "data.augment.horizontal_flip=false")
    assert runs.samples("plain") == runs.samples("whole") and runs.difference("plain", "whole") > 1e-4


@pytest.mark.parametrize("text", TEXTS)
def test_other_ranks_train_the_same_bits_where_that_is_asked(onebatch, tmp_path, text):
    runs = Runs(onebatch, tmp_path, TEXTS[text], 'run.deterministic="bitwise"')
    runs.train("whole", 1, 0, STEPS)
    runs.train("parts", 3, 4, STOPPED)
    assert said_so(runs.train("parts", 2, 1, STEPS, resume=True))
    assert runs.samples("parts") == runs.samples("whole")
    assert runs.bits("parts") == runs.bits("whole")
