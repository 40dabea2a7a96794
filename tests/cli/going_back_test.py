"""Runs that go back to an older checkpoint, or begin from another run's, and then go on."""
import shutil

import pytest

from program import Scratch, read_json, settings

SMALL = """
[run]
output_dir = "{runs}"
[batch]
global_batch_size = 8
micro_batch_size = 4
replan = "never"
[data]
kind = "synthetic"
shape = [1, 4, 4]
num_classes = 3
size = 100
[model]
kind = "mlp"
hidden = [4]
[verify]
at_start = false
[checkpoint]
every_steps = 4
keep = 0
[log]
report = false
samples = true
"""


class Runs(Scratch):
    def __init__(self, program, path):
        super().__init__(path, SMALL)
        self.program = program

    def train(self, name, steps, *arguments, begin=None):
        pairs = [f"run.name={name}", f"run.max_steps={steps}"] + ([f"checkpoint.resume={begin}"] if begin else [])
        return self.program.run(1, "train", self.config, *settings(*pairs), *arguments)

    def checkpoints(self, name):
        return self.runs / name / "checkpoints"

    def saved(self, name):
        return sorted(path.name for path in self.checkpoints(name).iterdir())


@pytest.fixture
def runs(onebatch, tmp_path):
    made = Runs(onebatch, tmp_path)
    made.train("a", 12)
    return made


def test_what_comes_after_the_older_one_is_set_aside(runs):
    said = runs.train("a", 6, begin=runs.checkpoints("a") / "step-4")
    assert "step-8.aside, step-12.aside in " in said
    assert runs.saved("a") == ["latest", "step-12.aside", "step-4", "step-6", "step-8.aside"]
    assert f"resumed from {runs.checkpoints('a')}/step-6:" in runs.train("a", 10, "--resume")


@pytest.mark.parametrize("name", ("good", "checkpoints/best"))
def test_from_a_copy_under_another_name_it_goes_back_too(runs, name):
    shutil.copytree(runs.checkpoints("a") / "step-4", runs.runs / "a" / name)
    said = runs.train("a", 6, begin=runs.runs / "a" / name)
    assert "step-8.aside, step-12.aside in " in said
    assert [saved for saved in runs.saved("a") if saved != "best"] == ["latest", "step-12.aside", "step-4", "step-6", "step-8.aside"]
    assert f"resumed from {runs.checkpoints('a')}/step-6:" in runs.train("a", 10, "--resume")


def test_a_copy_of_what_is_not_there_any_more_takes_its_place(runs):
    copy = runs.runs / "a" / "good"
    (runs.checkpoints("a") / "step-4").rename(copy)
    runs.train("a", 6, begin=copy)
    assert runs.saved("a") == ["latest", "step-12.aside", "step-4", "step-6", "step-8.aside"]
    assert (copy / "manifest.json").exists()


def test_what_was_set_aside_can_be_gone_on_from(runs):
    runs.train("a", 6, begin=runs.checkpoints("a") / "step-4")
    runs.train("a", 14, begin=runs.checkpoints("a") / "step-8.aside")
    assert runs.saved("a") == ["latest", "step-12", "step-12.aside", "step-14", "step-4", "step-6", "step-8"]


def test_a_run_that_began_from_anothers_goes_on_with_its_own(runs):
    begin = runs.checkpoints("a") / "step-4"
    assert f"resumed from {begin}:" in runs.train("b", 7, "--resume", begin=begin)
    for steps, own in ((9, 7), (11, 9)):
        assert f"resumed from {runs.checkpoints('b')}/step-{own}:" in runs.train("b", steps, "--resume", begin=begin)
    assert runs.folders() == ["a", "b"]
    assert f"resumed from {begin}:" in runs.train("b", 5, begin=begin), "without --resume it is a new run"
    assert runs.folders() == ["a", "b", "b-2"]


def test_back_in_its_own_it_goes_on_from_there_once(runs):
    begin = runs.checkpoints("a") / "step-4"
    assert f"resumed from {begin}:" in runs.train("a", 6, "--resume", begin=begin)
    assert f"resumed from {runs.checkpoints('a')}/step-6:" in runs.train("a", 10, "--resume", begin=begin)


@pytest.mark.parametrize("begin", ("{a}/checkpoints/step-8", "{a}/checkpoints/step-8/", "{a}/../link", "{a}/copy"))
def test_a_complete_run_stays_what_it_is(runs, begin):
    result = runs.runs / "a" / "result.json"
    (runs.runs / "link").symlink_to(runs.checkpoints("a") / "step-8")
    shutil.copytree(runs.checkpoints("a") / "step-8", runs.runs / "a" / "copy")

    def record():
        return {name: (runs.runs / "a" / name).read_bytes() for name in ("result.json", "config.toml", "metrics.jsonl", "samples.jsonl", "validation.jsonl", "metrics.csv", "validation.csv")
                if (runs.runs / "a" / name).exists()}  # fmt: skip

    before = record()
    assert len(before) >= 5
    assert "none of them now" in runs.train("a", 12, "--resume", *settings("optimizer.lr=0.5"))
    assert record() == before
    runs.train("a", 8, begin=begin.format(a=runs.runs / "a"))
    assert record() == before
    assert runs.saved("a") == ["latest", "step-12", "step-4", "step-8"]
    runs.train("a", 16, "--resume")
    assert read_json(result)["steps"] == 16


def test_a_complete_runs_validation_stays_what_it_was(runs):
    runs.train("v", 12, *settings("data.validation.kind=synthetic", "data.validation.size=40"))
    names = ("result.json", "config.toml", "validation.jsonl", "metrics.jsonl", "validation.csv")
    before = {name: (runs.runs / "v" / name).read_bytes() for name in names}
    again = runs.train("v", 12, "--resume", *settings("data.validation.kind=synthetic", "data.validation.size=24", "checkpoint.keep_best.metric=loss"))
    assert "none of them now" in again
    assert {name: (runs.runs / "v" / name).read_bytes() for name in names} == before
    assert "best" not in runs.saved("v")


def test_a_run_that_was_killed_as_it_had_saved_its_last_step_ends_with_latest_there(runs):
    latest = runs.checkpoints("a") / "latest"
    latest.unlink()
    latest.symlink_to("step-8")
    (runs.runs / "a" / "result.json").unlink()
    assert "none of them now" in runs.train("a", 12, "--resume")
    assert latest.readlink().name == "step-12"
    assert read_json(runs.runs / "a" / "result.json")["train_loss"] is None, "this start has made no step"


def test_a_new_run_from_a_checkpoint_after_which_nothing_is_left_to_do_is_complete(runs):
    runs.train("b", 12, begin=runs.checkpoints("a") / "step-12")
    assert all((runs.runs / "b" / name).exists() for name in ("config.toml", "result.json"))
    assert runs.saved("b") == ["latest", "step-12"]
    assert f"resumed from {runs.checkpoints('b')}/step-12:" in runs.train("b", 14, "--resume")


def test_a_complete_run_without_checkpoints_is_not_begun_again(runs):
    shutil.rmtree(runs.checkpoints("a"))
    lines = (runs.runs / "a" / "metrics.jsonl").read_bytes()
    runs.train("a", 12, "--resume", *settings("run.seed=7"))
    assert (runs.runs / "a" / "metrics.jsonl").read_bytes() == lines
    assert runs.folders() == ["a", "a-2"]


@pytest.mark.parametrize("rate, is_number", (("1e39", False), ("1e30", True)))
def test_weights_that_are_no_numbers_replace_none(runs, rate, is_number):
    wrong = settings(f"optimizer.lr={rate}", "checkpoint.keep=1")
    said = runs.program.run(1, "train", runs.config, *settings("run.name=a", "run.max_steps=20"), *wrong, "--resume", code=1)
    assert ("not finite, and not saved" in said) != is_number
    assert f'checkpoint.resume = "{runs.checkpoints("a")}/step-N"' in said
    assert "step-12" in runs.saved("a")
    if not is_number:
        assert f"resumed from {runs.checkpoints('a')}/step-12:" in runs.train("a", 14, "--resume")


def test_weights_that_are_no_numbers_are_not_saved_where_a_save_is_due(runs):
    """The gradient of step 13 is finite, and its update makes infinities."""
    wrong = settings("optimizer.lr=1e39", "checkpoint.keep=1", "checkpoint.every_steps=1")
    said = runs.program.run(1, "train", runs.config, *settings("run.name=a", "run.max_steps=20"), *wrong, "--resume", code=1)
    assert "the weights that step 13 has made are not finite (NaN or infinity), and not saved" in said
    assert "step-12" in runs.saved("a") and "step-13" not in runs.saved("a")
    assert f"resumed from {runs.checkpoints('a')}/step-12:" in runs.train("a", 14, "--resume")


def test_steps_that_overflow_push_out_no_checkpoint(runs):
    half = ("--set", "precision.compute=float16", "--set", "checkpoint.keep=1")
    runs.train("half", 12, *half)
    assert runs.saved("half") == ["latest", "step-12"]
    said = runs.program.run(1, "train", runs.config, *settings("run.name=half", "run.max_steps=60", "optimizer.lr=1e30"), *half, "--resume", code=1)
    assert "overflows float16" in said
    assert "step-12" in runs.saved("half"), runs.saved("half")
