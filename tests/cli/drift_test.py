"""One device becomes three times slower in mid-run: a new plan, the same samples and weights. How soon and how good: bench/living_plan.py."""
import pytest

from program import Scratch, read_json, read_json_lines, read_safetensors, relative_l2, settings

CHANGE = 40  # the step from which on rank 0 is slow
TEXT = """
[run]
max_steps = 120
output_dir = "{{runs}}"
name = "run"
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
"""
RESNET = TEXT.replace("shape = [512]", "shape = [3, 8, 8]").replace('kind = "mlp"\nhidden = [1024, 1024]', 'kind = "resnet"\ndepth = 8\nstem = "cifar"')
RESNET = RESNET.replace("max_steps = 120", "max_steps = 60").replace("size = 2048", "size = 256").replace("global_batch_size = 256", "global_batch_size = 64")


class Drifted:
    def __init__(self, program, path, text, changes, *pairs):
        scratch = Scratch(path, text.format(changes=changes))
        self.out = program.run(2, "train", scratch.config, "--json", path / "r.json", *settings(*pairs), environment={"OMP_NUM_THREADS": "1"}, seconds=300)
        run = scratch.runs / "run"
        self.replans = read_json(path / "r.json")["replans"]
        self.plans = [line["plan"] for line in read_json_lines(run / "metrics.jsonl")]
        self.samples = (run / "samples.jsonl").read_text()
        self.weights = read_safetensors(run / "checkpoints" / "latest" / "model.safetensors")


@pytest.fixture(scope="module")
def steady(onebatch, tmp_path_factory):
    return Drifted(onebatch, tmp_path_factory.mktemp("steady"), TEXT, "")


@pytest.fixture(scope="module")
def drifted(onebatch, tmp_path_factory):
    return Drifted(onebatch, tmp_path_factory.mktemp("drifted"), TEXT, f", changes = [{{{{step = {CHANGE}, slowdown = 6.0}}}}]")


def test_the_samples_of_every_step_are_the_same(steady, drifted):
    assert drifted.samples == steady.samples


def test_the_weights_are_the_same(steady, drifted):
    assert drifted.weights.keys() == steady.weights.keys()
    assert relative_l2(drifted.weights, steady.weights) <= 1e-10


def test_there_is_a_new_plan_and_the_reason_is_said(drifted):
    assert "replanned: device speeds changed; predicted compute" in drifted.out
    assert drifted.plans[-1] > drifted.plans[CHANGE - 2]
    assert drifted.replans >= 1


# With BatchNorm the result would change.
SLOWER = ", changes = [{{step = 20, slowdown = 9.0}}]"


def test_with_batch_norm_the_drift_is_said_and_the_plan_stays(onebatch, tmp_path):
    norm = Drifted(onebatch, tmp_path, RESNET, SLOWER)
    assert norm.replans == 0, norm.out
    assert 'batch.replan = "always" replans' in norm.out


def test_with_batch_norm_a_new_plan_is_made_when_asked_for(onebatch, tmp_path):
    norm = Drifted(onebatch, tmp_path, RESNET, SLOWER, 'batch.replan="always"')
    assert norm.replans > 0, norm.out


# A plan that stays needs no tables: a run that was given its plan has none.
def test_where_a_plan_is_never_made_anew_nothing_is_measured_anew(onebatch, tmp_path):
    text = TEXT.replace("hidden = [1024, 1024]", "hidden = [32]").replace("max_steps = 120", "max_steps = 40").replace("{{slowdown = 2.0", "{{step_seconds = [[1, 0.001], [256, 0.03]]")
    scratch = Scratch(tmp_path, text.format(changes=", changes = [{{step = 5, slowdown = 6.0}}]"))
    pairs = settings('batch.replan="never"', "verify.at_start=false")
    onebatch.run(2, "train", scratch.config, *pairs, *settings("run.max_steps=1", "run.name=planned"))
    out = onebatch.run(2, "train", scratch.config, *pairs, "--plan", scratch.runs / "planned" / "plan.json", "--json", tmp_path / "r.json")
    assert "probe of every rank's device" not in out
    assert read_json(tmp_path / "r.json")["replans"] == 0
