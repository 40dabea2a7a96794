"""The same configuration on 1, 2, 3 and 4 ranks: the same samples in each step, the same validation loss; launchers' traps."""
import pytest

from program import Scratch, read_json, read_json_lines, settings

# Exact BatchNorm has the statistics of the whole batch, on any ranks; synchronised, those of one step of all ranks.
BATCH_NORM = ("model.kind=resnet", "model.depth=8", "model.stem=cifar", "model.hidden=[512, 512]", "precision.compute=float64", "precision.parameters=float64", "run.epochs=1",
              "batch.last_batch=drop")
MODES = {"exact": lambda ranks: f"batch.micro_batch_size={90 // ranks}", "sync": lambda ranks: "batch.gradient_accumulation_steps=1"}


class Trained:
    def __init__(self, program, path, ranks, *pairs):
        scratch = Scratch(path)
        program.run(ranks, "train", scratch.config, "--quiet", *settings(*pairs), "--json", path / "r.json")
        self.loss = read_json(path / "r.json")["validation_loss"]
        self.samples = read_json_lines(scratch.runs / "run" / "samples.jsonl")
        self.shares = read_json(scratch.runs / "run" / "plan.json")["ranks"]


@pytest.fixture(scope="module")
def trained(onebatch, tmp_path_factory):
    """Made when it is first asked for."""
    made = {}

    def train(ranks, *pairs):
        if (ranks, *pairs) not in made:
            made[ranks, *pairs] = Trained(onebatch, tmp_path_factory.mktemp("run"), ranks, *pairs)
        return made[ranks, *pairs]

    return train


@pytest.mark.parametrize("ranks", (2, 3, 4))
def test_the_samples_of_each_step_are_those_of_one_rank(trained, ranks):
    assert trained(ranks).samples == trained(1).samples


@pytest.mark.parametrize("ranks", (2, 3, 4))
def test_the_validation_loss_is_that_of_one_rank(trained, ranks):
    assert trained(ranks).loss == pytest.approx(trained(1).loss, rel=1e-4)


def test_dropout_draws_by_sample_and_has_the_same_masks_on_any_ranks(trained):
    assert trained(3, "model.dropout=0.3").loss == pytest.approx(trained(1, "model.dropout=0.3").loss, rel=1e-4)


@pytest.mark.parametrize("ranks", (2, 3))
@pytest.mark.parametrize("mode", MODES)
def test_batch_norm_has_the_validation_loss_of_one_rank(trained, mode, ranks):
    expected = trained(1, *BATCH_NORM, MODES[mode](1), f"batch_norm.mode={mode}").loss
    assert trained(ranks, *BATCH_NORM, MODES[mode](ranks), f"batch_norm.mode={mode}").loss == pytest.approx(expected, rel=1e-9)


def test_in_lock_step_a_rank_may_have_no_samples_in_one_micro_step_and_some_in_others(trained):
    shares = trained(3, *BATCH_NORM, "batch_norm.mode=sync", "batch.global_batch_size=32", "batch.micro_batch_size=1").shares  # 32 on 3 ranks, one at a time
    assert any({0, 1} <= {size for size, count in rank["micro_batches"]} for rank in shares), shares


def test_mpiruns_default_binding_works(onebatch, scratch):
    done = onebatch.finish(["mpirun", "--oversubscribe", "-np", "2", onebatch.path, "train", scratch.config, "--quiet"])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_rank_that_fails_alone_takes_the_others_along_and_is_named(onebatch, scratch):
    out = onebatch.run(2, "train", scratch.config, *settings('simulate.devices=[{slowdown = 1.0}, {memory = "20KiB"}]'), code=3)
    assert "rank 1 (" in out


def test_a_launcher_that_says_by_pmix_alone_starts_one_run(onebatch, scratch):
    without = [word for name in ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE") for word in ("-u", name)]
    words = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", "env", *without, onebatch.path, "train", scratch.config, *settings("run.max_steps=2")]
    done = onebatch.finish([str(word) for word in words])
    assert done.returncode == 0, done.stdout + done.stderr
    assert scratch.folders() == ["run"] and len(read_json(scratch.runs / "run/plan.json")["ranks"]) == 2
