"""Which weights a run leaves: the best, the last, the averaged ones; and when it validates and ends."""
import json
import shutil

import pytest

from program import DIGITS_MLP, DIGITS_RESNET, Scratch, read_json, read_json_lines, read_safetensors, relative_l2, settings, write_safetensors

# Times from a table, so that every start plans alike.
DEVICES = "[{slowdown = 1.0, step_seconds = [[1, 0.0005], [64, 0.004]]}, {slowdown = 2.0, step_seconds = [[1, 0.0005], [64, 0.004]]}]"
QUICK = DIGITS_MLP.replace("hidden = [64, 48]", "hidden = [16]").replace("[log]\nsamples = true\n", "").split("[simulate]")[0]
QUICK += "max_val = 64\n[simulate]\ndevices = " + DEVICES.replace("{", "{{").replace("}", "}}") + "\n"
# Loss falls, then the rate is too high for it to fall on: the run ends early.
WATCHED = settings("run.validate_every_steps=4", "run.val_first=true", "run.early_stopping.metric=loss", "run.early_stopping.patience=3", "checkpoint.keep_best.metric=accuracy",
                   "optimizer.ema_decay=0.8", "optimizer.lr=2.0", "batch.replan=never", "checkpoint.keep=2", "run.epochs=40", "schedule.warmup_epochs=0.5")


class Run(Scratch):
    def __init__(self, program, path, *arguments):
        super().__init__(path, QUICK)
        self.program, self.arguments = program, arguments
        self.folder = self.runs / "run"
        self.checkpoints = self.folder / "checkpoints"

    def train(self, *more, ranks=1, **options):
        self.out = self.program.run(ranks, "train", self.config, *self.arguments, *more, **options)
        return self

    def lines(self, name):
        return read_json_lines(self.folder / f"{name}.jsonl")

    def validations(self):
        """Without when and how fast they were."""
        return [(line["step"], line["loss"], line["accuracy"]) for line in self.lines("validation")]

    def steps(self):
        return sorted(int(path.name[5:]) for path in self.checkpoints.iterdir() if path.name.startswith("step-"))

    def best(self):
        mark = read_json(self.checkpoints / "best.json")
        assert (self.checkpoints / "best").resolve().name == mark["checkpoint"] == f"step-{mark['step']}"
        return mark

    def state(self, step):
        return read_json(self.checkpoints / f"step-{step}" / "state.json")["validations"]


@pytest.fixture
def make(onebatch, tmp_path_factory):
    return lambda *arguments: Run(onebatch, tmp_path_factory.mktemp("run"), *arguments)


@pytest.fixture(scope="module", params=(1, 2))
def whole(request, onebatch, tmp_path_factory):
    """Trained on so many ranks with everything on, and in one piece."""
    run = Run(onebatch, tmp_path_factory.mktemp("whole"), *WATCHED)
    run.ranks = request.param
    return run.train("--json", run.path / "result.json", ranks=run.ranks)


def test_a_run_that_gets_no_better_ends_early_with_success_and_says_so_once(whole):
    result = read_json(whole.path / "result.json")
    assert result["stopped_early"] is True
    losses = [(loss, step) for step, loss, _ in whole.validations()]
    best, best_step = min(losses)
    assert result["steps"] == losses[-1][1] < 40 * len(losses)
    assert len([step for _, step in losses if step > best_step]) == 3, "patience"
    assert whole.out.count("ended early after step") == 1
    assert f"ended early after step {result['steps']}: loss was {best:.6g} after step {best_step}, and no better in 3 validations since" in whole.out


def test_it_validates_before_the_first_step_and_every_so_many(whole):
    steps = [step for step, _, _ in whole.validations()]
    per_epoch = next(line["step"] for line in whole.lines("metrics") if line["epoch"] == 1)
    assert steps == sorted({0, *(step for step in range(1, steps[-1] + 1) if step % 4 == 0 or step % per_epoch == 0)})


def test_the_best_checkpoint_stays_beside_the_newest(whole):
    first = max(whole.validations(), key=lambda line: (line[2], -line[0]))
    mark = whole.best()
    assert (mark["step"], mark["metric"], mark["value"]) == (first[0], "accuracy", first[2])
    assert mark["step"] in whole.steps()
    assert len(whole.steps()) <= 3
    assert whole.steps()[-1] == whole.validations()[-1][0]


# Stopped after steps that are and are not validated, with the state of early stopping, the best one and the average in the checkpoint.
def test_in_five_pieces_it_is_the_same_run_bit_for_bit(whole, make):
    end = whole.steps()[-1]
    cuts = sorted({3, 4, end // 2, end // 2 + 1, end - 2})
    pieces = make(*WATCHED, "--set", "checkpoint.every_steps=1", "--set", "checkpoint.keep=0")
    pieces.train("--plan", whole.folder / "plan.json", ranks=whole.ranks)  # which is a part of what is bit-identical
    for cut in reversed(cuts):  # each start goes on from a checkpoint, as if all that came after had never been
        for step in [step for step in pieces.steps() if step > cut]:
            shutil.rmtree(pieces.checkpoints / f"step-{step}")
        (pieces.folder / "result.json").unlink()
        pieces.train("--resume", ranks=whole.ranks)
        assert "resumed from" in pieces.out
        assert pieces.validations() == whole.validations()
        assert pieces.steps()[-1] == end
        for file in ("model", "optimizer"):
            of_pieces, of_whole = (read_safetensors(run.checkpoints / f"step-{end}" / f"{file}.safetensors") for run in (pieces, whole))
            assert of_pieces.keys() == of_whole.keys()
            assert [name for name in of_whole if of_pieces[name] != of_whole[name]] == []
        assert pieces.best() == whole.best()
        assert "ended early" in pieces.out


def test_a_run_that_ends_early_has_nothing_left_until_its_patience_is_raised(whole, make):
    again = make(*WATCHED)
    shutil.copytree(whole.folder, again.folder)
    before = again.validations()
    again.train("--resume", ranks=whole.ranks)
    assert "the run has ended early at step" in again.out
    assert again.validations() == before, "the last one is made again, bit for bit"
    assert len(again.lines("metrics")) == before[-1][0]
    again.train("--resume", "--set", "run.early_stopping.patience=5", ranks=whole.ranks)
    assert len(again.lines("metrics")) > before[-1][0]
    assert again.validations()[: len(before)] == before


def test_a_run_that_ended_where_it_was_saved_is_left_as_it_is(make):
    """Its last checkpoint is of the step of the validation that ends it, and knows of that."""
    run = make(*settings("run.early_stopping={metric='loss', min_delta=10, patience=2}", "run.validate_every_steps=2", "checkpoint.every_steps=2", "run.max_steps=20")).train()
    before = (run.folder / "result.json").read_text()
    assert run.lines("metrics")[-1]["step"] == 6 and run.state(6)["early_stopping"]["without"] == 2
    run.train("--resume", *settings("run.validate_every_steps=5"))
    assert "the run has ended early at step 6" in run.out
    assert (run.folder / "result.json").read_text() == before and run.lines("metrics")[-1]["step"] == 6


def test_a_complete_run_is_validated_as_before_whatever_would_be_planned_now(onebatch, tmp_path):
    """Running statistics are averaged by the shares that ranks had."""
    scratch = Scratch(tmp_path, DIGITS_RESNET)
    common = settings("run.max_steps=4", "batch.replan=never")
    last = lambda: [read_json_lines(scratch.runs / "run/validation.jsonl")[-1][key] for key in ("step", "loss", "accuracy", "lr")]
    onebatch.run(2, "train", scratch.config, *common, *settings("batch.global_batch_size=12", "batch.micro_batch_size=[8,4]"))
    before = last()
    onebatch.run(2, "train", scratch.config, "--resume", *common, *settings("batch.global_batch_size=16", "batch.micro_batch_size=[8,8]"))
    assert last() == pytest.approx(before, rel=1e-5)


def test_a_validation_in_which_nothing_counts_has_no_loss_and_is_no_best(onebatch, tmp_path):
    x = [i / 7 for i in range(40)]
    for name, y in (("train", [i % 3 for i in range(20)]), ("validation", [9] * 20)):
        write_safetensors(tmp_path / f"{name}.safetensors", x=("F32", [20, 2], x), y=("I64", [20], y))
    scratch = Scratch(tmp_path, QUICK.replace('kind = "idx"\npath = "data/digits"\n[data.validation]', f'kind = "safetensors"\npath = "{tmp_path}/train.safetensors"\n[data.validation]\npath = "{tmp_path}/validation.safetensors"'))
    pairs = settings("run.max_steps=2", "loss.ignore_index=9", "checkpoint.keep_best.metric=loss", "run.validate_every_steps=1", "batch.global_batch_size=4")
    out = onebatch.run(1, "train", scratch.config, *pairs)
    assert out.count("the loss is no number: no sample of data.validation counts (loss.ignore_index") == 1
    assert [line["loss"] for line in read_json_lines(scratch.runs / "run/validation.jsonl")] == [None, None]
    assert "the best loss was" not in out
    assert "PASS" in onebatch.run(1, "verify", scratch.config, *pairs)


def test_the_average_is_that_of_a_plain_loop(make):
    run = make(*settings("run.max_steps=6", "optimizer.ema_decay=0.7", "checkpoint.every_steps=1", "checkpoint.keep=0", "run.val_first=true", "checkpoint.keep_best.metric=loss"))
    run.train()
    assert "validation is of the averaged weights (optimizer.ema_decay = 0.7)" in run.out
    if not (run.checkpoints / "step-0").exists():
        pytest.fail("the first validation is the best so far: its checkpoint is kept")
    average = read_safetensors(run.checkpoints / "step-0" / "model.safetensors")
    for step in range(1, 7):
        weights = read_safetensors(run.checkpoints / f"step-{step}" / "model.safetensors")
        average = {name: [0.7 * a + 0.3 * w for a, w in zip(average[name], weights[name])] for name in weights}
        found = read_safetensors(run.checkpoints / f"step-{step}" / "optimizer.safetensors")
        assert relative_l2({name: found[f"ema.{name}"] for name in average}, average) < 1e-6
        assert relative_l2(weights, average) > 1e-3


@pytest.fixture(scope="module")
def averaged(onebatch, tmp_path_factory):
    run = Run(onebatch, tmp_path_factory.mktemp("averaged"), *settings("run.max_steps=8", "optimizer.ema_decay=0.7", "checkpoint.keep_best.metric=loss", "run.validate_every_steps=4"))
    return run.train()


def evaluated(run, *arguments, ranks=1, **options):
    run.out = run.program.run(ranks, "eval", run.config, *arguments, "--json", run.path / "eval.json", **options)
    return read_json(run.path / "eval.json")["validation_loss"] if not options.get("code") else None


@pytest.mark.parametrize("ranks", (1, 2))
def test_eval_takes_the_averaged_weights_unless_told_otherwise(averaged, ranks):
    loss = averaged.validations()[-1][1]
    assert evaluated(averaged, "--checkpoint", averaged.checkpoints / "step-8", ranks=ranks) == pytest.approx(loss, rel=1e-6)
    assert "with the averaged weights" in averaged.out
    raw = evaluated(averaged, "--checkpoint", averaged.folder, "--weights", "raw", ranks=ranks)
    assert "the averaged weights" not in averaged.out
    assert raw != pytest.approx(loss, rel=1e-4)
    best = averaged.best()
    assert evaluated(averaged, "--checkpoint", averaged.checkpoints / "best", ranks=ranks) == pytest.approx(best["value"], rel=1e-6)


def test_weights_that_are_not_there_are_not_taken_in_silence(make):
    run = make(*settings("run.max_steps=2")).train()
    evaluated(run, "--checkpoint", run.folder)
    assert "averaged" not in run.out
    evaluated(run, "--checkpoint", run.folder, "--weights", "ema", code=2)
    assert "has no averaged weights, since its run had optimizer.ema_decay = 0: leave --weights out" in run.out
    assert "ema" in run.program.run(1, "eval", run.config, "--checkpoint", run.folder, "--weights", "best", code=2)


def test_with_local_batch_norm_on_two_ranks_the_average_is_of_one_model(onebatch, tmp_path):
    """The average is a plain loop's, and training's validation is that of one rank, with the statistics of both."""
    run = Scratch(tmp_path, DIGITS_RESNET)
    onebatch.run(2, "train", run.config, *settings("run.max_steps=3", "run.epochs=1", "run.name=run", "optimizer.ema_decay=0.7", "checkpoint.every_steps=1", "checkpoint.keep=0", "run.val_first=true",
                                                   "checkpoint.keep_best.metric=loss", "run.validate_every_steps=1"))  # fmt: skip
    checkpoints = run.runs / "run" / "checkpoints"
    validated = {line["step"]: line["loss"] for line in read_json_lines(run.runs / "run" / "validation.jsonl")}
    average = None
    for step in range(4):
        saved = read_safetensors(checkpoints / f"step-{step}" / "model.safetensors")
        found = {name[4:]: numbers for name, numbers in read_safetensors(checkpoints / f"step-{step}" / "optimizer.safetensors").items() if name.startswith("ema.")}
        weights = {name: saved[name] for name in (found or average or saved)}
        average = {name: [0.7 * a + 0.3 * w for a, w in zip(average[name], weights[name])] for name in weights} if average else weights
        if step > 0:
            assert relative_l2(found, average) < 1e-6
            assert relative_l2(weights, average) > 1e-4
        onebatch.run(1, "eval", run.config, "--checkpoint", checkpoints / f"step-{step}", "--json", run.path / "eval.json")
        assert read_json(run.path / "eval.json")["validation_loss"] == pytest.approx(validated[step], rel=1e-4)


def test_export_takes_the_same_weights(averaged):
    target = averaged.path / "weights.safetensors"
    export = lambda *arguments: averaged.program.run(1, "export", *arguments, "--to", target, "--overwrite", "--json", averaged.path / "export.json")
    step = averaged.checkpoints / "step-8"
    said = export(averaged.folder)
    assert "has the averaged weights of step 8" in said
    average = {name[4:]: numbers for name, numbers in read_safetensors(step / "optimizer.safetensors").items() if name.startswith("ema.")}
    assert read_safetensors(target) == average, "this model has nothing else"
    assert read_json(averaged.path / "export.json")["weights"] == "ema"
    export(averaged.folder, "--weights", "raw")
    assert target.read_bytes() == (step / "model.safetensors").read_bytes()
    assert f"the averaged weights of step {averaged.best()['step']}, from" in export(averaged.checkpoints / "best")


def test_a_run_goes_on_from_the_best(averaged, make):
    run = make(*settings("run.max_steps=10", "optimizer.ema_decay=0.7", f"checkpoint.resume={averaged.checkpoints}/best")).train()
    assert f"step {averaged.best()['step']}, " in run.out


@pytest.mark.parametrize("ranks", (1, 2))
def test_a_run_that_begins_from_anothers_checkpoint_has_a_best_one_of_its_own(make, ranks):
    first = make(*settings("run.epochs=1")).train(ranks=ranks)
    begun = first.steps()[-1]
    run = make(*settings("run.epochs=2", "checkpoint.keep=0", "checkpoint.keep_best.metric=loss", f"checkpoint.resume={first.checkpoints}/latest")).train(ranks=ranks)
    assert run.best()["step"] in run.steps()
    assert begun in run.steps(), "the first validation was the best so far"


@pytest.mark.parametrize("keep", (1, 2, 0))
def test_the_best_of_a_run_that_ended_within_an_epoch_is_not_forgotten(make, keep):
    """The validation at its end is made after its checkpoint is saved, and is none of those that a longer run makes."""
    run = make(*settings("run.max_steps=8", "optimizer.lr=0.05", f"checkpoint.keep={keep}", "checkpoint.keep_best.metric=loss")).train()
    before = run.best()
    earlier = run.state(8)["best"]["best_step"]
    assert before["step"] == 8 and earlier < 8 and run.steps()[-1] == 8
    run.train("--resume", *settings("run.max_steps=9", "optimizer.lr=20"))
    assert run.validations()[-1][1] > before["value"]
    assert run.best() == before and run.steps()[-2:] == [8, 9] and (earlier in run.steps()) == (keep == 0)


@pytest.mark.parametrize("value", (None, -1.0))
def test_a_mark_that_was_left_half_made_is_made_right(make, value):
    run = make(*settings("run.max_steps=1", "run.val_first=true", "optimizer.lr=20", "checkpoint.keep_best.metric=loss")).train()
    before = run.best()
    assert before["step"] == 0
    (run.checkpoints / "best.json").write_text("{" if value is None else json.dumps({**before, "value": value}))
    run.train("--resume")
    assert run.best() == before


def test_an_average_may_begin_and_end_in_mid_run(make):
    run = make(*settings("checkpoint.every_steps=1", "checkpoint.keep=0")).train("--set", "run.max_steps=3")
    weights = read_safetensors(run.checkpoints / "step-3" / "model.safetensors")
    run.train("--resume", "--set", "run.max_steps=4", "--set", "optimizer.ema_decay=0.5")
    assert "the checkpoint has no averaged weights: the average begins with those of step 3" in run.out
    last = read_safetensors(run.checkpoints / "step-4" / "model.safetensors")
    found = read_safetensors(run.checkpoints / "step-4" / "optimizer.safetensors")
    expected = {name: [(a + b) / 2 for a, b in zip(weights[name], last[name])] for name in last}
    assert relative_l2({name: found[f"ema.{name}"] for name in last}, expected) < 1e-6
    run.train("--resume", "--set", "run.max_steps=5")
    assert "the checkpoint's averaged weights are left out, since optimizer.ema_decay is 0" in run.out
    assert not any(name.startswith("ema.") for name in read_safetensors(run.checkpoints / "step-5" / "optimizer.safetensors"))


@pytest.mark.parametrize("key", ("run.early_stopping.metric", "checkpoint.keep_best.metric"))
def test_a_metric_that_there_is_not_is_refused_before_the_first_step(make, key):
    run = make(*settings(f"{key}=acuracy")).train(code=2)
    assert f'{key} = "acuracy": a validation of this run has no such number, but "loss", "accuracy"' in run.out
    assert not (run.folder / "metrics.jsonl").exists() or run.lines("metrics") == []


@pytest.mark.parametrize("key", ("run.early_stopping.metric", "checkpoint.keep_best.metric"))
def test_a_start_that_is_refused_for_it_leaves_the_run_as_it_is(make, key):
    run = make(*settings("run.max_steps=6", "checkpoint.every_steps=2", "checkpoint.keep=0")).train()

    def record():
        return {str(path): path.readlink() if path.is_symlink() else path.read_bytes() for path in run.folder.rglob("*") if path.is_symlink() or path.is_file()}

    before = record()
    assert run.steps() == [2, 4, 6]
    run.train(*settings(f"checkpoint.resume={run.checkpoints}/step-2", f"{key}=acuracy"), code=2)
    assert record() == before


def test_of_steps_and_epochs_the_first_ends_the_run(make):
    run = make(*settings("run.max_steps=3", "run.epochs=5")).train()
    assert "the run ends with run.max_steps = 3: run.epochs = 5 would be" in run.out
    assert [line["step"] for line in run.lines("metrics")] == [1, 2, 3]
    run = make(*settings("run.max_steps=3000", "run.epochs=1")).train()
    assert "the run ends with run.epochs = 1, after step" in run.out
    assert run.lines("metrics")[-1]["epoch"] == 1


def test_the_rate_is_scaled_with_the_batch_and_warms_up(make):
    run = make(*settings("run.max_steps=10", "optimizer.lr=0.1", "optimizer.lr_scaling=linear", "optimizer.lr_batch_size=514", "schedule.warmup_fraction=0.4")).train()
    assert "is meant for batches of 514: at 257 it is 0.05" in run.out
    assert [line["lr"] for line in run.lines("metrics")] == pytest.approx([0.0125, 0.025, 0.0375, *[0.05] * 7])
