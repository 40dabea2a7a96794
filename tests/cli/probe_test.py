"""The probe on simulated budgets against trying every size, for both models; and training at what it found. --full: the budgets of a real card's scale, for minutes."""
import math

import pytest

from program import Scratch, read_json, settings

HEAD = '[run]\nmax_steps = 1\noutput_dir = "{runs}"\n[batch]\nglobal_batch_size = 8192\n[checkpoint]\nresume = "never"\n'
MODELS = {
    "mlp": '[data]\nkind = "synthetic"\nshape = [{width}]\nsize = 9000\n[model]\nkind = "mlp"\nhidden = [{width}, {width}]\n',
    "resnet": '[data]\nkind = "synthetic"\nshape = [3, 32, 32]\nsize = 9000\n[model]\nkind = "resnet"\ndepth = {depth}\nstem = "cifar"\n',
}
SCALES = {"small": (("12MiB", "40MiB"), {"width": 512, "depth": 8}), "full": (("128MiB", "512MiB", "1GiB"), {"width": 1024, "depth": 20})}


def pytest_generate_tests(metafunc):
    if "probed" in metafunc.fixturenames:
        scale = "full" if metafunc.config.getoption("--full") else "small"
        cases = [(scale, model, memory) for model in MODELS for memory in SCALES[scale][0]]
        metafunc.parametrize("probed", cases, indirect=True, scope="module", ids="-".join)


class Probed:
    """What was found on a device of so much memory."""

    def __init__(self, program, path, scale, model, memory):
        self.program = program
        self.scratch = Scratch(path, HEAD + MODELS[model].format(**SCALES[scale][1]))
        self.device = settings(f'simulate.devices=[{{memory = "{memory}"}}]')
        self.rank = self.again()
        self.found = self.rank["largest_micro_batch"]

    def again(self, *pairs):
        self.program.run(1, "probe", self.scratch.config, *self.device, *settings(*pairs), "--json", self.scratch.path / "p.json")
        return read_json(self.scratch.path / "p.json")["ranks"][0]

    def fits(self, size):
        """Whether a fixed micro-batch of this size trains: the truth, found by trying."""
        pairs = (f"batch.micro_batch_size={size}", "probe.mode=binsearch", f"probe.init_val={size}", "probe.steps_per_trial=1")
        return "does not fit" not in self.program.run(1, "probe", self.scratch.config, *self.device, *settings(*pairs), code=(0, 3))


@pytest.fixture(scope="module")
def probed(request, onebatch, tmp_path_factory):
    return Probed(onebatch, tmp_path_factory.mktemp("probed"), *request.param)


def test_few_trials_fail(probed):
    trials = probed.rank["trials"]
    assert len(trials) <= 8
    assert sum(trial["out_of_memory"] for trial in trials) <= 2


def test_what_was_found_fits(probed):
    assert probed.fits(probed.found)


def test_a_twentieth_more_does_not_fit_unless_the_cap_was_reached(probed):
    assert probed.found == 8192 or not probed.fits(int(probed.found / 0.95) + 1)


def test_the_margin_is_kept_and_at_most_5_percent_for_a_size_that_kernels_like(probed):
    kept = math.ceil(0.95 * probed.found - 1e-9)
    assert 0.95 * kept < probed.rank["max_micro_batch"] <= kept or probed.found == 8192


def test_the_same_question_is_answered_from_the_cache(probed):
    cached = probed.again()
    assert cached["from_cache"]
    assert len(cached["trials"]) == 1
    assert cached["max_micro_batch"] == probed.rank["max_micro_batch"]


@pytest.mark.parametrize("pair", ("probe.cache=false", "probe.margin=0.06", "optimizer.kind=sgd", "comm.backend=mpi"))
def test_another_question_has_another_answer(probed, pair):
    assert not probed.again(pair)["from_cache"]


# Of devices of a known speed.
SIMULATED = '[run]\nmax_steps = 32\noutput_dir = "{runs}"\n[batch]\nglobal_batch_size = 64\n[data]\nkind = "synthetic"\nshape = [16]\nsize = 6400\n[model]\nkind = "mlp"\nhidden = [8]\n'
SLOWER = ", changes = [{step = 3, slowdown = 2.0}]"


@pytest.mark.parametrize("ranks, changes, kept", ((1, "", True), (1, SLOWER, False), (2, SLOWER, False)))
def test_a_cached_answer_is_believed_again_unless_the_steps_contradict_it(onebatch, tmp_path, ranks, changes, kept):
    scratch = Scratch(tmp_path, SIMULATED)
    device = f"{{slowdown = 1.0, step_seconds = [[1, 0.01], [64, 0.12]]{changes}}}"
    # The cache's key has the devices, which two of the cases share.
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    simulated = settings(f"simulate.devices=[{', '.join([device] * ranks)}]")
    onebatch.run(ranks, "probe", scratch.config, *simulated, environment=cache)
    out = onebatch.run(ranks, "train", scratch.config, *simulated, environment=cache)
    assert "from the cache" in out, "the first answer is kept"
    assert ("times what the probe's cache says" in out) != kept, "a contradiction is said"
    onebatch.run(ranks, "probe", scratch.config, *simulated, "--json", tmp_path / "p.json", environment=cache)
    assert [rank["from_cache"] for rank in read_json(tmp_path / "p.json")["ranks"]] == [kept] * ranks


def test_a_model_that_needs_two_samples_is_found_out(onebatch, tmp_path):
    """BatchNorm over one value."""
    scratch = Scratch(tmp_path, HEAD + '[data]\nkind = "synthetic"\nshape = [3, 32, 32]\nsize = 64\n[model]\nkind = "resnet"\ndepth = 18\n')
    onebatch.run(1, "probe", scratch.config, *settings("batch.global_batch_size=8"), "--json", tmp_path / "p.json")
    assert read_json(tmp_path / "p.json")["ranks"][0]["min_micro_batch"] == 2
