"""metrics.csv, validation.csv and TensorBoard's event files say what metrics.jsonl and validation.jsonl say, of a whole run and of one that was
killed and gone on with on other ranks."""
import csv
import os
import pathlib
import signal
import subprocess
import time

import pytest

from event_files import events, shown
from program import DIGITS_MLP, Scratch, read_json_lines, settings, write_safetensors

MORE = settings("run.epochs=3", "checkpoint.every_steps=4")
SLOW = DIGITS_MLP.replace("slowdown = ", "step_seconds = [[1, 0.05], [257, 0.06]], slowdown = ")
PER_RANK = ("compute_seconds", "data_wait_seconds", "memory_peak_bytes")


class Run:
    def __init__(self, program, path, text=DIGITS_MLP):
        self.scratch = Scratch(path, text)
        self.program, self.folder = program, self.scratch.runs / "run"

    def train(self, ranks, *arguments):
        return self.program.run(ranks, "train", self.scratch.config, *MORE, *arguments)

    def kill_after(self, ranks, step):
        process = self.program.start(ranks, "train", self.scratch.config, *MORE)
        metrics, deadline = self.folder / "metrics.jsonl", time.monotonic() + 60
        while not (metrics.exists() and metrics.read_text().count("\n") >= step):
            assert process.poll() is None and time.monotonic() < deadline, f"step {step} was not reached"
            time.sleep(0.01)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children or [process.pid]:
            os.kill(int(child), signal.SIGKILL)
        process.communicate(timeout=60)

    def lines(self, name):
        return read_json_lines(self.folder / f"{name}.jsonl")

    def rows(self, name):
        with open(self.folder / f"{name}.csv", newline="") as file:
            return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def whole(onebatch, tmp_path_factory):
    run = Run(onebatch, tmp_path_factory.mktemp("whole"))
    run.train(2)
    return run


@pytest.fixture(scope="module")
def broken(onebatch, tmp_path_factory):
    """Killed on two ranks after a checkpoint and a few steps more, then gone on with on three."""
    run = Run(onebatch, tmp_path_factory.mktemp("broken"), SLOW)
    run.kill_after(2, 10)
    run.train(3, "--resume")
    return run


def flattened(line):
    """As a row of a table has it."""
    cells = {}
    for name, value in line.items():
        if isinstance(value, list):
            cells.update({f"{name}_{rank}": one for rank, one in enumerate(value)})
        else:
            cells[name] = value
    return cells


def same(text, value):
    if value is None:
        return text == ""
    return float(text) == float(value)


@pytest.mark.parametrize("which", ("whole", "broken"))
@pytest.mark.parametrize("name", ("metrics", "validation"))
def test_tables_say_what_lines_say(request, which, name):
    run = request.getfixturevalue(which)
    lines, rows = run.lines(name), run.rows(name)
    assert [int(row["step"]) for row in rows] == [line["step"] for line in lines]
    for line, row in zip(lines, rows, strict=True):
        cells = flattened(line)
        assert all(same(row[column], value) for column, value in cells.items()), (row, cells)
        assert all(text == "" for column, text in row.items() if column not in cells), row


def test_each_step_stands_once_after_a_kill(broken):
    assert [line["step"] for line in broken.lines("metrics")] == list(range(1, 19))
    rows = broken.rows("metrics")
    assert rows[0]["compute_seconds_2"] == "", "two ranks had begun it"
    assert float(rows[-1]["compute_seconds_2"]) >= 0.0


def test_lines_have_their_time(whole, broken):
    for run in (whole, broken):
        times = [line["time"] for line in run.lines("metrics")]
        assert times == sorted(times)
        assert time.time() - 600 < times[0] <= times[-1] <= time.time()
    validations = whole.lines("validation")
    assert [line["consumed_samples"] for line in validations] == [1500, 3000, 4500]
    metrics = {line["step"]: line for line in whole.lines("metrics")}
    for line in validations:
        assert line["time"] >= metrics[line["step"]]["time"]
        assert line["lr"] == metrics[line["step"]]["lr"]


def expected_scalars(run):
    """tag -> {step: value}"""
    found = {}
    for line in run.lines("metrics"):
        for name in ("loss", "lr", "grad_norm", "epoch", "consumed_samples"):
            found.setdefault(f"train/{name}", {})[line["step"]] = line[name]
        for name in ("samples_per_second", "step_seconds", "exposed_comm_seconds"):
            found.setdefault(f"speed/{name}", {})[line["step"]] = line[name]
        for name in PER_RANK:
            for rank, value in enumerate(line[name]):
                found.setdefault(f"{name}/rank_{rank}", {})[line["step"]] = value
    for line in run.lines("validation"):
        for name in ("loss", "accuracy"):
            found.setdefault(f"validation/{name}", {})[line["step"]] = line[name]
    return found


def check_scalars(series, run):
    expected = expected_scalars(run)
    assert series.keys() == expected.keys()
    for tag, points in series.items():
        assert [step for step, _ in points] == sorted(expected[tag]), tag
        assert [value for _, value in points] == pytest.approx([expected[tag][step] for step, _ in points], rel=1e-6), tag


@pytest.mark.parametrize("which, starts", (("whole", 1), ("broken", 2)))
def test_event_files_say_what_lines_say(request, which, starts):
    run = request.getfixturevalue(which)
    folder = run.folder / "tensorboard"
    assert len(list(folder.iterdir())) == starts
    check_scalars(shown(folder), run)


def test_a_start_takes_back_what_was_not_saved(broken):
    first, second = sorted((broken.folder / "tensorboard").iterdir())
    done = max(event["step"] for event in events(first))
    begins = [event["step"] for event in events(second) if event["starts"]]
    assert done >= 10
    assert begins == [9], "the checkpoint of step 8 is what it goes on from"


@pytest.mark.parametrize("which", ("whole", "broken"))
def test_tensorboards_own_reader_shows_the_same(request, which):
    """Where TensorBoard is installed: python -m pip install tensorboard."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard is not installed")
    run = request.getfixturevalue(which)
    reader = accumulator.EventAccumulator(str(run.folder / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0}, purge_orphaned_data=True)
    reader.Reload()
    tags = reader.Tags()
    if tags["scalars"]:
        series = {tag: [(one.step, one.value) for one in reader.Scalars(tag)] for tag in tags["scalars"]}
    else:
        from tensorboard.util import tensor_util

        series = {tag: [(one.step, float(tensor_util.make_ndarray(one.tensor_proto))) for one in reader.Tensors(tag)] for tag in tags["tensors"]}
    check_scalars(series, run)


def test_what_is_not_wanted_is_not_written(onebatch, scratch):
    onebatch.run(1, "train", scratch.config, *settings("run.max_steps=2", "log.csv=false", "log.tensorboard=false", "log.jsonl=false"))
    names = {path.name for path in (scratch.runs / "run").iterdir()}
    assert not names & {"metrics.csv", "validation.csv", "tensorboard", "metrics.jsonl", "validation.jsonl"}


def test_a_disk_that_cannot_hold_a_checkpoint_is_said_before_anything_begins(onebatch, scratch):
    """A file system of 64 KiB, where this process may mount one."""
    small = scratch.path / "small"
    small.mkdir()
    inside = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64k none "$1" && shift && exec "$@"', "sh", small]
    if subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    done = onebatch.finish([*map(str, inside), *onebatch.command_line(1, "train", scratch.config, *settings(f"run.output_dir={small}", "run.max_steps=2"))])
    assert done.returncode == 2, done.stdout + done.stderr
    assert "are free there, and a checkpoint takes" in done.stderr
    assert "probe of every rank" not in done.stdout


def test_a_pipe_and_what_a_link_leads_to_are_written_and_stay(onebatch, scratch):
    pipe, link, target = (scratch.path / name for name in ("pipe", "link.json", "target.json"))
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    onebatch.run(1, "data", scratch.config, "--json", pipe)
    assert "looked_at" in reader.communicate(timeout=60)[0].decode() and pipe.is_fifo()
    link.symlink_to("target.json")
    for _ in range(2):
        onebatch.run(1, "data", scratch.config, "--json", link)
        assert link.is_symlink() and "looked_at" in target.read_text()
        target.write_text("")


def test_what_is_read_is_not_written_over(onebatch, scratch):
    before = scratch.config.read_bytes()
    assert "is a configuration" in onebatch.run(1, "train", scratch.config, "--json", scratch.config, code=2)
    assert scratch.config.read_bytes() == before
    onebatch.run(1, "train", scratch.config, *settings("run.max_steps=2"))
    model = scratch.runs / "run/checkpoints/latest/model.safetensors"
    before = model.read_bytes()
    assert "is a part of a checkpoint" in onebatch.run(1, "report", scratch.runs / "run", "--out", model, code=2)
    assert model.read_bytes() == before
    onebatch.run(1, "export", scratch.runs / "run", "--to", model.parent / "weights.safetensors", code=2)
    said = onebatch.run(1, "eval", scratch.config, "--checkpoint", model.parent, "--json", model.parent / "eval.json", code=2)
    assert "would lie in a checkpoint" in said and not (model.parent / "eval.json").exists()
    onebatch.run(1, "eval", scratch.config, "--checkpoint", model.parent)


def test_verify_does_not_write_over_the_data(onebatch, tmp_path):
    scratch = Scratch(tmp_path, DIGITS_MLP.replace("[data.validation]\n", ""))
    data, link = scratch.path / "data.safetensors", scratch.path / "link.safetensors"
    write_safetensors(data, x=("F32", [16, 2], [0.5] * 32), y=("I64", [16], [0, 1] * 8))
    link.symlink_to(data)
    before = data.read_bytes()
    pairs = settings("data.kind=safetensors", "batch.global_batch_size=8", f"data.path={data}")
    for file in (data, link):
        assert f"--save-gradient {file} is read here" in onebatch.run(1, "verify", scratch.config, *pairs, "--save-gradient", file, code=2)
    named = settings(f"data.path={scratch.path}", 'data.files=["data.safetensors"]')
    assert "is read here" in onebatch.run(1, "verify", scratch.config, *pairs[:4], *named, "--save-gradient", data, code=2)
    assert data.read_bytes() == before


def test_export_does_not_write_over_what_the_run_reads(onebatch, scratch):
    first, base, program = scratch.runs / "run", scratch.path / "base.safetensors", scratch.path / "model.pt2"
    onebatch.run(1, "train", scratch.config, *settings("run.max_steps=2"))
    onebatch.run(1, "export", first, "--to", base)
    onebatch.run(1, "train", scratch.config, *settings("run.max_steps=2", "run.name=next", f"model.weights={base}"))
    program.write_text("a program")
    before = base.read_bytes()
    for more in ((), ("--overwrite",)):
        assert f"--to {base} is read by the run: name another file" in onebatch.run(1, "export", scratch.runs / "next", "--to", base, *more, code=2)
        named = onebatch.run(1, "export", scratch.config, "--checkpoint", first, *settings(f"model.path={program}"), "--to", program, *more, code=2)
        assert f"--to {program} is read by the run: name another file" in named
    assert base.read_bytes() == before and program.read_text() == "a program"
    assert "add --overwrite" in onebatch.run(1, "export", first, "--to", base, code=2)


def test_check_does_not_write_over_what_it_reads(onebatch, tmp_path):
    program, inputs = tmp_path / "model.pt2", tmp_path / "given.safetensors"
    program.write_text("a program")
    inputs.write_text("tensors")
    for file in (program, inputs):
        assert f"--save {file} is read here" in onebatch.run(1, "check", program, "--inputs", inputs, "--save", file, code=2)
    assert program.read_text() == "a program" and inputs.read_text() == "tensors"


def test_standard_output_that_is_a_file_is_added_to(onebatch, scratch):
    log = scratch.path / "all.log"
    log.write_text("before\n")
    with open(log, "a") as opened:
        process = onebatch.start(1, "data", scratch.config, "--json", "/dev/stdout", stdout=opened, stderr=subprocess.PIPE)
    assert process.communicate(timeout=60)[1] == "" and process.returncode == 0
    said = log.read_text()
    assert said.startswith("before\n") and '"looked_at"' in said and "samples/s" in said
