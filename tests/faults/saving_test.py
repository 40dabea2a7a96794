"""A checkpoint that is written beside the steps, slowly: training goes on, its end waits, and what all ranks have agreed on is finished."""
import time

import pytest

from program import Scratch, read_json, read_json_lines, settings

CONFIG = """
[run]
max_steps = {{steps}}
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = 64
micro_batch_size = 16
[data]
kind = "idx"
path = "data/digits"
[model]
kind = "mlp"
hidden = [16]
[checkpoint]
every_steps = {{every}}
keep = 0
[verify]
at_start = false
[probe]
cache = false
max_val = 16
steps_per_trial = 1
[comm]
timeout_seconds = {{timeout}}
"""


class Run(Scratch):
    def __init__(self, program, path, steps, every, timeout=60):
        super().__init__(path, CONFIG)
        self.config.write_text(self.config.read_text().format(steps=steps, every=every, timeout=timeout))
        self.program, self.folder, self.moment = program, self.runs / "run", path / "moment"

    def train(self, ranks, *pairs, **options):
        return self.program.run(ranks, "train", self.config, *settings(*pairs), **options)

    def saved(self):
        return sorted(int(path.name[5:]) for path in self.folder.glob("checkpoints/step-*"))

    def partial(self):
        return [path.name for path in self.folder.glob("checkpoints/.*")]

    def check_whole(self, step):
        """That train takes it for whole."""
        validation = settings("data.validation.kind=idx", "data.validation.path=data/digits")
        assert "validation loss" in self.program.run(1, "eval", self.config, *validation, "--checkpoint", self.folder / "checkpoints" / f"step-{step}")


@pytest.fixture
def make_run(faulty_onebatch, tmp_path_factory):
    return lambda **options: Run(faulty_onebatch, tmp_path_factory.mktemp("run"), **options)


def slowly(seconds, fault=""):
    return {"ONEBATCH_SLOW_WRITE": str(seconds), "ONEBATCH_FAULT": fault}


@pytest.mark.parametrize("ranks", (1, 2))
def test_training_goes_on_while_a_checkpoint_is_written_and_its_end_waits(make_run, ranks):
    run = make_run(steps=7, every=4)
    process = run.program.start(ranks, "train", run.config, environment=slowly(4))
    metrics = run.folder / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline and not (metrics.exists() and metrics.read_text().count("\n") >= 6):
        time.sleep(0.01)
    before = run.saved()
    out = process.communicate(timeout=60)[0]
    assert before == [], "step 6 is done while the checkpoint of step 4 is written"
    assert process.returncode == 0, out
    assert run.saved() == [4, 7]
    assert run.partial() == []
    result = read_json(run.folder / "result.json")
    assert result["checkpoints_saved"] == 2
    assert result["checkpoint_waits"] == 1, "the second has waited for the first"
    assert result["checkpoint_seconds"] > 2
    run.check_whole(4)


@pytest.fixture(scope="module")
def copies(faulty_onebatch, tmp_path_factory):
    """Checksums of every step's files, from a run that writes beside the steps and from one that waits."""
    files = []
    for background in ("true", "false"):
        run = Run(faulty_onebatch, tmp_path_factory.mktemp("run"), steps=9, every=1)
        run.train(2, f"checkpoint.background={background}", "run.deterministic=bitwise", environment={"ONEBATCH_SLOW_COPY": "0.2"})
        assert run.saved() == list(range(1, 10))
        files.append({step: read_json(run.folder / "checkpoints" / f"step-{step}" / "manifest.json")["files"] for step in range(1, 10)})
    return files


@pytest.mark.parametrize("name", ("model.safetensors", "optimizer.safetensors", "rank_generators.safetensors"))
def test_a_copy_is_what_training_had_at_its_step(copies, name):
    beside, waiting = ({step: files[name] for step, files in run.items()} for run in copies)
    assert beside == waiting


def test_the_newest_stays_and_every_fourth_steps(make_run):
    run = make_run(steps=9, every=2)
    run.train(1, "checkpoint.keep=1", "checkpoint.keep_every=4")
    assert run.saved() == [4, 8, 9]


def test_a_rank_that_fails_in_the_steps_after_does_not_cost_the_checkpoint(make_run):
    run = make_run(steps=9, every=4)
    out = run.train(2, environment=slowly(3, f"1 model 5 throw {run.moment}"), code=1)
    assert "this was planned by a test (model)" in out
    assert "rank 1" in out
    assert run.saved() in ([4], [4, 5]), "what the other rank had done may be saved"
    assert run.partial() == []
    run.check_whole(4)


# Nothing is left but the watchdog: it puts the end off.
def test_nor_does_a_rank_that_is_stopped(make_run):
    run = make_run(steps=9, every=4, timeout=4)
    out = run.train(2, environment=slowly(7.3, f"1 step 5 stop {run.moment}"), code=4)
    assert "its process is stopped" in out
    assert run.saved() in ([4], [4, 5]), out


def test_a_failure_in_writing_is_told_to_all_in_the_step_after_and_none_of_the_later_ones_counts(make_run):
    run = make_run(steps=400, every=4)
    out = run.train(2, environment={"ONEBATCH_FAULT": f"0 write 8 throw {run.moment}"}, code=1)
    assert "rank 0" in out
    assert "this was planned by a test (write)" in out
    older, *by_the_other_rank = run.saved()
    assert older == 4
    assert all(8 <= step < 13 for step in by_the_other_rank), by_the_other_rank
    assert run.partial() == []
    assert 8 <= len(read_json_lines(run.folder / "metrics.jsonl")) < 13, "it is told before the next save"
