"""Figures that are read when the next step was begun, as on a GPU: a run says and saves what it does where they are read at once."""
import pytest

from program import DIGITS_MLP, DIGITS_RESNET, Scratch, read_json_lines, settings

TIMES = ("seconds", "per_second", "time", "memory", "predicted")


class Run:
    def __init__(self, faulty_onebatch, scratch, name, late, *changes, code=0, fault=None):
        environment = ({"ONEBATCH_LATE": "1"} if late else {}) | ({"ONEBATCH_FAULT": fault} if fault else {})
        self.out = faulty_onebatch.run(1, "train", scratch.config, "--quiet", *settings(f'run.name="{name}"', "batch.micro_batch_size=32", 'batch.replan="never"', *changes), code=code, environment=environment)
        self.folder = scratch.runs / name

    def lines(self):
        return [{key: value for key, value in line.items() if not any(part in key for part in TIMES)} for line in read_json_lines(self.folder / "metrics.jsonl")]

    def weights(self):
        latest = sorted(self.folder.glob("checkpoints/step-*"))[-1]
        return latest.name, (latest / "model.safetensors").read_bytes(), (latest / "optimizer.safetensors").read_bytes()


@pytest.fixture(params=[("mlp", DIGITS_MLP), ("resnet", DIGITS_RESNET)], ids=lambda case: case[0])
def scratch(request, tmp_path):
    return Scratch(tmp_path, request.param[1])


def test_a_run_says_and_saves_the_same(faulty_onebatch, scratch):
    changes = ("run.epochs=2", "checkpoint.every_steps=4")
    at_once, late = (Run(faulty_onebatch, scratch, name, name == "late", *changes) for name in ("at-once", "late"))
    assert late.lines() == at_once.lines() and len(late.lines()) > 8
    assert late.weights() == at_once.weights()
    assert all(line["step_seconds"] > 0 for line in read_json_lines(late.folder / "metrics.jsonl"))


def test_resumed_it_is_the_same(faulty_onebatch, scratch):
    at_once = Run(faulty_onebatch, scratch, "at-once", False, "run.max_steps=9")
    Run(faulty_onebatch, scratch, "late", True, "run.max_steps=5")
    late = Run(faulty_onebatch, scratch, "late", True, "run.max_steps=9", 'checkpoint.resume="auto"')
    assert late.lines() == at_once.lines() and late.weights() == at_once.weights()


@pytest.mark.parametrize("rate", ["1e30", "1e12"])
def test_a_gradient_that_is_not_finite_ends_it_with_the_same_words_and_weights(faulty_onebatch, scratch, rate):
    at_once, late = (Run(faulty_onebatch, scratch, name, name == "late", f"optimizer.lr={rate}", code=1) for name in ("at-once", "late"))
    words = [next(line for line in run.out.splitlines() if "the gradient is not finite" in line).replace(str(run.folder), "RUN") for run in (at_once, late)]
    assert words[0] == words[1]
    assert late.lines() == at_once.lines()
    assert late.weights() == at_once.weights()


def test_what_ends_a_run_leaves_no_line_out(faulty_onebatch, scratch):
    """The model fails in its seventh step, when the sixth's figures have not been read."""
    late = Run(faulty_onebatch, scratch, "late", True, code=1, fault=f"0 model 6 throw {scratch.runs}/moment")
    assert "this was planned by a test (model)" in late.out
    assert [line["step"] for line in late.lines()] == [1, 2, 3, 4, 5, 6]
