"""The memory of one device halves in mid-run: the run goes on, with the same samples and, without batch statistics, the same losses."""
import os
import pathlib
import signal
import subprocess
import time

import pytest

from program import Scratch, read_json, read_json_lines

CONFIG = """
[run]
max_steps = 8
output_dir = "{{runs}}"
[batch]
global_batch_size = {batch}
[data]
kind = "synthetic"
size = 3000
{model}
[precision]
parameters = "float64"
compute = "float64"
[comm]
overlap = {overlap}
[probe]
cache = false
steps_per_trial = 1
[checkpoint]
resume = "never"
[log]
samples = true
[simulate]
devices = [{{{{memory = "{memory}"}}}}, {{{{memory = "{memory}"}}}}]
"""
MLP = {"batch": 1500, "model": 'shape = [96]\n[model]\nkind = "mlp"\nhidden = [96, 96, 96]\ndropout = 0.2', "memory": "4MiB"}
RESNET = {"batch": 300, "model": 'shape = [3, 16, 16]\n[model]\nkind = "resnet"\ndepth = 8\nstem = "cifar"', "memory": "64MiB"}


class Trained:
    def __init__(self, program, path, fault, **settings):
        scratch = Scratch(path, CONFIG.format(**settings))
        self.out = program.run(2, "train", scratch.config, "--json", path / "r.json", environment={"ONEBATCH_FAULT": fault, "OMP_NUM_THREADS": "1"}, seconds=300)
        self.result = read_json(path / "r.json")
        run = pathlib.Path(self.result["run_dir"])
        self.events = read_json_lines(run / "events.jsonl")
        self.plans = {line["step"]: line["plan"] for line in read_json_lines(run / "metrics.jsonl")}
        self.losses = [line["loss"] for line in read_json_lines(run / "metrics.jsonl")]
        self.samples = (run / "samples.jsonl").read_text()


class Pair:
    """The same run undisturbed, and with half of rank 1's memory from step 3 on."""

    def __init__(self, program, folders, **settings):
        self.clean = Trained(program, folders.mktemp("clean"), "-1 - 0 - -", **settings)
        self.less = Trained(program, folders.mktemp("less"), "1 step 3 memory -", **settings)


@pytest.fixture(scope="module", params=("false", "true"), ids=("alone", "overlapped"))
def mlp(request, faulty_onebatch, tmp_path_factory):
    return Pair(faulty_onebatch, tmp_path_factory, overlap=request.param, **MLP)


@pytest.fixture(scope="module")
def resnet(faulty_onebatch, tmp_path_factory):
    return Pair(faulty_onebatch, tmp_path_factory, overlap="false", **RESNET)


def test_nothing_runs_out_of_memory_by_itself(mlp):
    assert mlp.clean.result["out_of_memory_events"] == 0
    assert mlp.clean.result["replans"] == 0


def test_the_losses_are_the_same(mlp):
    assert len(mlp.less.losses) == 8
    assert mlp.less.losses == pytest.approx(mlp.clean.losses, rel=1e-12)


def test_the_samples_are_the_same(mlp):
    assert mlp.less.samples == mlp.clean.samples


def test_it_is_counted_and_said(mlp):
    assert mlp.less.result["out_of_memory_events"] >= 1
    assert mlp.less.result["replans"] >= 1
    assert "on rank 1" in mlp.less.out
    assert "ran out of memory in a step" in mlp.less.out


def test_a_step_that_was_done_in_halves_is_the_last_under_its_plan(mlp):
    ran_out = {event["step"] for event in mlp.less.events if event["event"] == "out_of_memory"}
    changes = [event for event in mlp.less.events if event["event"] == "replanned" and event["cause"] == "out_of_memory"]
    assert {event["step"] for event in changes} == ran_out
    assert [mlp.less.plans[event["step"]] for event in changes] == [event["replans"] - 1 for event in changes]


def test_after_it_survivors_save_the_new_plan(faulty_onebatch, tmp_path):
    scratch = Scratch(tmp_path, CONFIG.replace("max_steps = 8", "max_steps = 4000").format(overlap="false", **MLP))
    run = faulty_onebatch.start(2, "train", scratch.config, "--quiet", "--set", "run.name=run", environment={"ONEBATCH_FAULT": "1 step 3 memory -", "OMP_NUM_THREADS": "1"})
    folder, until = scratch.runs / "run", time.monotonic() + 60
    while not ((folder / "metrics.jsonl").exists() and (folder / "metrics.jsonl").read_text().count("\n") >= 8):
        assert run.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    ranks = subprocess.run(["pgrep", "-f", f"^{faulty_onebatch.path} train {scratch.config}"], capture_output=True, text=True).stdout.split()
    os.kill(int(ranks[0]), signal.SIGKILL)
    said = run.communicate(timeout=60)[0]
    assert "saved step" in said, said
    planned, saved = read_json(folder / "plan.json"), read_json(folder / "checkpoints/latest/state.json")["plan"]
    sizes = [[rank["micro_batches"] for rank in plan["ranks"]] for plan in (planned, saved)]
    assert sizes[0] == sizes[1]


def test_with_batch_norm_the_run_goes_on(resnet):
    assert len(resnet.less.losses) == 8
    assert resnet.less.samples == resnet.clean.samples
    assert all(loss < 10 for loss in resnet.less.losses), resnet.less.losses


def test_with_batch_norm_the_step_is_done_again_under_a_new_plan(resnet):
    assert resnet.less.result["out_of_memory_events"] >= 1, resnet.less.out
    assert resnet.less.result["replans"] >= 1, resnet.less.out
