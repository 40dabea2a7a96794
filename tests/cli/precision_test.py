"""Numbers that are not finite end a run before they are kept, and name their operator; a loss scale goes on where a checkpoint left it."""
import pytest

from program import DIGITS_MLP, DIGITS_RESNET, Scratch, read_json, read_json_lines, read_safetensors, settings

HALF = settings("precision.compute=float16", "precision.loss_scale_growth_steps=2")


@pytest.fixture(scope="module", params=(("mlp", DIGITS_MLP, "aten::"), ("resnet", DIGITS_RESNET, "aten::conv2d")), ids=lambda case: case[0])
def diverged(request, onebatch, tmp_path_factory):
    _, text, operator = request.param
    made = Scratch(tmp_path_factory.mktemp("diverged"), text)
    made.operator = operator
    made.out = onebatch.run(2, "train", made.config, "--quiet", *settings("optimizer.lr=1e30"), code=1)
    made.saved = sorted((made.runs / "run" / "checkpoints").glob("step-*"))
    return made


def test_the_operator_is_named(diverged):
    assert "the gradient is not finite" in diverged.out
    assert diverged.operator in diverged.out
    assert ", after layer" in diverged.out


def test_the_last_good_weights_are_saved(diverged):
    assert len(diverged.saved) == 1
    state = read_json(diverged.saved[0] / "state.json")
    assert state["consumed_samples"] == 257 * state["step"], "what was not used is not counted as used"


def test_what_is_saved_is_finite_running_statistics_too(diverged):
    values = read_safetensors(diverged.saved[0] / "model.safetensors")
    assert len(values) > 3
    assert [name for name, tensor in values.items() if not all(abs(value) < float("inf") for value in tensor)] == []


@pytest.fixture
def endless(tmp_path):
    return Scratch(tmp_path, DIGITS_MLP.replace("epochs = 3\n", ""))


# Not so far that a plan decides whether a micro-batch overflows.
def test_a_resumed_run_has_the_loss_scales_of_the_uninterrupted_one(onebatch, endless):
    sequences = []
    for name, parts in (("whole", [8]), ("parts", [5, 8])):
        for steps in parts:
            onebatch.run(2, "train", endless.config, "--quiet", "--resume", *HALF, *settings(f"run.name={name}", f"run.max_steps={steps}"))
        sequences.append([(line["loss_scale"], line["skipped"]) for line in read_json_lines(endless.runs / name / "metrics.jsonl")])
    whole, parts = sequences
    assert len(whole) == 8
    assert whole == parts
    assert max(scale for scale, _ in whole) >= 65536 * 8, "the scale grows"


def test_short_parameters_without_masters_are_warned_of(onebatch, endless):
    out = onebatch.run(2, "train", endless.config, "--quiet", *HALF, *settings("run.max_steps=1", "precision.parameters=float16", "precision.master_weights=false"))
    assert "without master weights are likely to end in NaN" in out


def test_a_fixed_loss_scale_ends_with_what_was_tried(onebatch, endless):
    out = onebatch.run(1, "train", endless.config, "--quiet", *settings("precision.compute=float16", "precision.loss_scale=1e9", "run.max_steps=30"), code=1)
    assert "at the fixed loss scale 1e+09, 20 steps in a row" in out
    assert 'Try precision.loss_scale = "dynamic", or a smaller number' in out


def test_an_order_of_images_that_the_model_has_no_use_for_is_said(onebatch, endless):
    command = [1, "train", endless.config, *settings("run.max_steps=1", "precision.channels_last=true")]
    assert "the model has no convolutions over images" in onebatch.run(*command)
    onebatch.run(*command, "--strict", code=2)
