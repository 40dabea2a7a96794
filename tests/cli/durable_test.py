"""Every file of a checkpoint, and its folder, is on the disk before it has its name; the folder that it lies in, thereafter. What the disk
has altered by then never has it."""
import pytest

from program import Scratch, settings

SETTINGS = ("--quiet", *settings("run.max_steps=4", "checkpoint.every_steps=2", "checkpoint.keep=0"))


class Noted:
    """A run's syncs and renames, in their order."""

    def __init__(self, program, path):
        self.scratch = Scratch(path)
        log = path / "syncs"
        program.run(2, "train", self.scratch.config, *SETTINGS, environment={"ONEBATCH_TEST_SYNCS": str(log)})
        self.events = [line.split("\t") for line in log.read_text().splitlines()]
        self.run = self.scratch.runs / "run"
        self.checkpoints = self.run / "checkpoints"

    def synced(self, path, begin=0, end=None):
        return ["sync", str(path)] in self.events[begin:end]

    def folders_of(self, step):
        """A checkpoint's folder, its folder before it had its name, and when it got it."""
        folder, partial = self.checkpoints / f"step-{step}", self.checkpoints / f".step-{step}.partial"
        return folder, partial, self.events.index(["rename", str(partial), str(folder)])


@pytest.fixture(scope="module")
def noted(noted_onebatch, tmp_path_factory):
    return Noted(noted_onebatch, tmp_path_factory.mktemp("noted"))


def test_the_runs_folder_is_synced_which_has_a_new_folder_in_it(noted):
    assert noted.synced(noted.run), noted.events


@pytest.mark.parametrize("step", (2, 4))
def test_every_file_is_synced_before_the_checkpoint_counts(noted, step):
    folder, partial, named = noted.folders_of(step)
    files = sorted(path.name for path in folder.iterdir())
    assert len(files) >= 5 and "state.json" in files
    # The manifest is written under another name itself.
    late = [file for file in files if not noted.synced(partial / file, 0, named) and not noted.synced(partial / f"{file}.partial", 0, named)]
    assert not late, noted.events


@pytest.mark.parametrize("step", (2, 4))
def test_the_folder_is_synced_before_it_counts_and_its_name_after(noted, step):
    _, partial, named = noted.folders_of(step)
    assert noted.synced(partial, 0, named), noted.events
    assert noted.synced(noted.checkpoints, named), noted.events


@pytest.mark.parametrize("ranks", (1, 2))
@pytest.mark.parametrize("name", ("model.safetensors", "state.json", "manifest.json.partial"))
def test_a_file_that_the_disk_alters_ends_the_run_and_the_checkpoint_before_it_stands(noted_onebatch, scratch, name, ranks):
    out = noted_onebatch.run(ranks, "train", scratch.config, *SETTINGS, environment={"ONEBATCH_TEST_FLIP": f".step-4.partial/{name}"}, code=(1, 4))
    assert f".step-4.partial/{name.removesuffix('.partial')} is not what was written" in out
    assert "rank 0" in out or ranks == 1
    assert sorted(path.name for path in (scratch.runs / "run" / "checkpoints").iterdir()) == ["latest", "step-2"]
