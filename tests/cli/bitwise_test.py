"""run.deterministic = "bitwise": the same bits on 1, 2, 3 and 4 ranks, under three plans each, after 100 steps, with exact BatchNorm, in float64, and resumed elsewhere."""
import pytest

from program import DIGITS_MLP, Scratch, read_json, read_json_lines, settings

PLANS = ((1.0, 1.0, 1.0, 1.0), (1.0, 4.0, 2.0, 1.0), (3.0, 1.0, 1.0, 9.0))
FLOAT64 = ("precision.compute=float64", "precision.parameters=float64")
CLIPPED = ("optimizer.max_grad_norm=0.5", "model.dropout=0.1")
MLP = ("run.max_steps=100", *CLIPPED)
LOCAL_RESNET = ("run.max_steps=6", "model.kind=resnet", "model.depth=8", "model.stem=cifar", "model.hidden=[512, 512]")
RESNET = (*LOCAL_RESNET, "batch_norm.mode=exact")


def bitwise(slowdowns, *pairs):
    devices = ", ".join(f"{{slowdown = {slowdown}}}" for slowdown in slowdowns)
    return ["--quiet", *settings('run.deterministic="bitwise"', "batch.micro_batch_size=20", f"simulate.devices=[{devices}]", *pairs)]


class Trained:
    """All bits of a run's end, and its shares."""

    def __init__(self, program, path, ranks, slowdowns, *pairs):
        self.scratch = Scratch(path, DIGITS_MLP.replace("epochs = 3\n", ""))
        program.run(ranks, "train", self.scratch.config, *bitwise(slowdowns, *pairs))
        self.run = self.scratch.runs / "run"
        self.state = [(self.run / "checkpoints" / "latest" / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")]
        self.shares = tuple(rank["samples"] for rank in read_json(self.run / "plan.json")["ranks"])


@pytest.fixture(scope="module")
def alone(onebatch, tmp_path_factory):
    return Trained(onebatch, tmp_path_factory.mktemp("alone"), 1, PLANS[0], *MLP)


@pytest.fixture(scope="module")
def others(onebatch, tmp_path_factory):
    """By ranks and slowness, each made when it is first asked for."""
    made = {}

    def trained(ranks, slowdowns):
        if (ranks, slowdowns) not in made:
            made[ranks, slowdowns] = Trained(onebatch, tmp_path_factory.mktemp("other"), ranks, slowdowns, *MLP)
        return made[ranks, slowdowns]

    return trained


CASES = [(ranks, slowdowns) for ranks in (1, 2, 3, 4) for slowdowns in PLANS if (ranks, slowdowns) != (1, PLANS[0])]


@pytest.mark.parametrize("ranks, slowdowns", CASES)
def test_the_bits_are_those_of_one_rank(alone, others, ranks, slowdowns):
    assert others(ranks, slowdowns).state == alone.state


def test_the_plans_differ_and_their_shares_are_whole_calls(alone, others):
    plans = {alone.shares} | {others(*case).shares for case in CASES}
    assert len(plans) >= 7
    odd = [plan for plan in plans if [share for share in plan[:-1] if share % 20 != 0 and share % 20 != 257 % 20]]
    assert odd == []


def test_ten_steps_are_an_ordinary_runs_but_for_the_last_bits(onebatch, scratch, alone):
    scratch.config.write_text(scratch.config.read_text().replace("epochs = 3\n", ""))
    onebatch.run(2, "train", scratch.config, "--quiet", *settings("run.max_steps=10", *CLIPPED))
    plain = read_json_lines(scratch.runs / "run" / "metrics.jsonl")
    assert read_json_lines(alone.run / "metrics.jsonl")[9]["loss"] == pytest.approx(plain[9]["loss"], rel=1e-4)


def test_it_trains(alone):
    assert read_json_lines(alone.run / "metrics.jsonl")[-1]["loss"] < 0.2


def all_alike(program, folders, cases, *pairs):
    first, *others = (Trained(program, folders.mktemp("run"), ranks, slowdowns, *pairs).state for ranks, slowdowns in cases)
    assert [case for case, state in zip(cases[1:], others, strict=True) if state != first] == []


def test_float64_has_the_same_bits(onebatch, tmp_path_factory):
    all_alike(onebatch, tmp_path_factory, [(1, PLANS[0]), (3, PLANS[1])], "run.max_steps=20", *FLOAT64)


# No sum of such weights is exact in float64, and every gradient is divided by it.
def test_weights_that_are_no_whole_numbers_have_the_same_bits(onebatch, tmp_path_factory):
    weights = "loss.class_weights=[0.1, 0.3, 0.7, 1.1, 1.3, 0.9, 0.77, 0.123, 2.3, 1.9]"
    all_alike(onebatch, tmp_path_factory, [(1, PLANS[0]), (2, PLANS[2]), (3, PLANS[1])], "run.max_steps=20", weights, *FLOAT64)


# Float64 keeps the last bit of running statistics too: every rank has them, so nothing is averaged.
@pytest.mark.parametrize("pairs", ((), FLOAT64), ids=("float32", "float64"))
def test_exact_batch_norm_has_the_same_bits(onebatch, tmp_path_factory, pairs):
    all_alike(onebatch, tmp_path_factory, [(1, PLANS[0]), (2, PLANS[2]), (3, PLANS[1])], *RESNET, *pairs)


def test_stopped_on_two_ranks_and_resumed_on_three_has_the_bits_of_the_uninterrupted_run(onebatch, tmp_path, alone):
    Trained(onebatch, tmp_path, 2, PLANS[1], "run.max_steps=40", *CLIPPED)
    assert Trained(onebatch, tmp_path, 3, PLANS[2], *MLP, "checkpoint.resume=auto").state == alone.state


def test_local_batch_norm_is_refused(onebatch, scratch):
    scratch.config.write_text(scratch.config.read_text().replace("epochs = 3\n", ""))
    assert 'write batch_norm.mode = "exact"' in onebatch.run(1, "train", scratch.config, *bitwise(PLANS[0], *LOCAL_RESNET), code=2)


def test_a_grain_is_needed(onebatch, scratch):
    scratch.config.write_text(scratch.config.read_text().replace("epochs = 3\n", ""))
    out = onebatch.run(1, "train", scratch.config, *settings("run.deterministic=bitwise", "run.max_steps=1"), code=2)
    assert "needs batch.micro_batch_size = n" in out
