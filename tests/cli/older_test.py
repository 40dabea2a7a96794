"""What an earlier version has left behind (tests/cli/older, written by one that kept kinds by number) is read, and gone on from, as it was."""
import pathlib
import shutil

import pytest

from program import read_json, read_safetensors, relative_l2, settings

OLDER = pathlib.Path(__file__).parent / "older"
LAST_STEP = 8


@pytest.fixture
def older(tmp_path):
    """The run's folder, and its configuration where a user keeps it."""
    folder = tmp_path / "runs/older"
    shutil.copytree(OLDER, folder)
    shutil.rmtree(folder / f"checkpoints/step-{LAST_STEP}")
    config = tmp_path / "older.toml"
    config.write_text((OLDER / "config.toml").read_text().replace('output_dir = "runs"', f'output_dir = "{tmp_path}/runs"'))
    return config, folder


def test_a_configuration_is_read_with_what_has_become_of_its_keys(onebatch, older):
    config, folder = older
    out = onebatch.run(1, "plan", config, "--profile", folder / "profile.json")
    assert "data.validation.workers: there are no workers" in out
    assert "plan for a global batch of 64" in out


def test_a_profile_and_a_plan_are_read(onebatch, older, tmp_path):
    config, folder = older
    onebatch.run(1, "plan", config, "--profile", folder / "profile.json", "--json", tmp_path / "plan.json")
    before, now = read_json(folder / "plan.json"), read_json(tmp_path / "plan.json")
    assert [rank["micro_batches"] for rank in now["ranks"]] == [rank["micro_batches"] for rank in before["ranks"]]
    onebatch.run(1, "train", config, "--plan", folder / "plan.json", *settings("run.name=planned"))


def test_a_checkpoint_is_gone_on_from_to_the_weights_of_then(onebatch, older):
    config, folder = older
    out = onebatch.run(1, "train", config, "--resume")
    assert "resumed from" in out
    now, then = (read_safetensors(run / f"checkpoints/step-{LAST_STEP}/model.safetensors") for run in (folder, OLDER))
    assert now.keys() == then.keys()
    assert relative_l2(now, then) < 1e-6


def test_kinds_are_kept_by_name_from_then_on(onebatch, older):
    config, folder = older
    assert read_json(folder / "checkpoints/step-4/state.json")["configuration"]["optimizer.kind"] == "1"
    onebatch.run(1, "train", config, "--resume")
    kept = read_json(folder / f"checkpoints/step-{LAST_STEP}/state.json")["configuration"]
    assert kept["optimizer.kind"] == "adam"
    assert kept["precision.parameters"] == "float32"
    assert kept["model.dropout"] == "0.3333333333333333"


@pytest.mark.parametrize("other, difference", [
    ("optimizer.kind=adamw", "the checkpoint has optimizer.kind = adam, not adamw"),
    ("model.dropout=0.25", "the checkpoint has model.dropout = 0.333333, not 0.25"),
    ("run.seed=2", "the checkpoint has run.seed = 1, not 2"),
])
def test_another_runs_checkpoint_is_refused_by_its_key(onebatch, older, other, difference):
    config, folder = older
    out = onebatch.run(1, "train", config, "--resume", *settings(other), code=2)
    assert "is of another run" in out
    assert difference in out
