"""Which folder a start takes: a new training is a new run, --resume goes on with the right one, and never do two write into one."""
import os
import pathlib
import re
import shlex
import signal
import socket
import time

import pytest

from program import DIGITS_MLP, Scratch, read_json, read_json_lines, settings

QUICK = DIGITS_MLP.replace("epochs = 3", "max_steps = 6").replace('[data.validation]\n', '').replace("hidden = [64, 48]", "hidden = [16]")
ENDLESS = settings("run.max_steps=1000000")
RATES = {"run": "0.05", "run-2": "0.1", "run-3": "0.2"}


class Runs(Scratch):
    def __init__(self, program, path):
        super().__init__(path, QUICK)
        self.program = program

    def train(self, *arguments, **options):
        return self.program.run(1, "train", self.config, *arguments, **options)

    def start(self, *arguments):
        return self.program.start(1, "train", self.config, *arguments)

    def begun(self, name, *arguments):
        """A run that has done some steps, and goes on."""
        metrics = self.runs / name / "metrics.jsonl"
        before = metrics.read_text() if metrics.exists() else ""
        process = self.start(*ENDLESS, *arguments)
        deadline = time.monotonic() + 60
        while not (metrics.exists() and metrics.read_text().count("\n") >= 3 and not before.startswith(metrics.read_text())):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"a step of {name} did not come\n{process.communicate()[0]}")
            time.sleep(0.01)
        return process

    def steps(self, name):
        return [line["step"] for line in read_json_lines(self.runs / name / "metrics.jsonl")]


@pytest.fixture
def runs(onebatch, tmp_path):
    return Runs(onebatch, tmp_path)


def stop(process):
    process.send_signal(signal.SIGUSR1)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 75, output
    return output


@pytest.fixture(scope="module")
def sweep(onebatch, tmp_path_factory):
    """Three configurations of one name."""
    made = Runs(onebatch, tmp_path_factory.mktemp("sweep"))
    made.losses = {}
    for name, rate in RATES.items():
        made.out = made.train(*settings(f"optimizer.lr={rate}"), "--json", made.path / "r.json")
        made.losses[name] = read_json(made.path / "r.json")["train_loss"]
    return made


def test_three_learning_rates_are_three_runs(sweep):
    assert sweep.folders() == [*RATES]
    assert len(set(sweep.losses.values())) == 3


def test_the_folder_is_said_in_one_line(sweep):
    assert re.search(r"a new run of this name: it is in .*run-3", sweep.out)


@pytest.mark.parametrize("name", RATES)
def test_each_run_has_its_own_configuration_result_and_steps(sweep, name):
    assert f"\nlr = {RATES[name]} " in (sweep.runs / name / "config.toml").read_text()
    assert read_json(sweep.runs / name / "result.json")["train_loss"] == sweep.losses[name]
    assert sweep.steps(name)[:6] == [1, 2, 3, 4, 5, 6]


def test_the_run_of_this_configuration_is_said_to_be_complete(sweep):
    out = sweep.train("--resume", *settings("optimizer.lr=0.1"))
    assert "run-2 was complete" in out
    assert "complete at step 6" in out
    assert "differs" not in out


def test_more_steps_go_on_and_every_key_that_differs_is_said(sweep):
    assert sweep.steps("run-3") == [1, 2, 3, 4, 5, 6]
    out = sweep.train("--resume", *settings("run.max_steps=9", "optimizer.lr=0.3"))
    assert "run-3 was complete; its configuration differs: run.max_steps: 6 -> 9, optimizer.lr: 0.2 -> 0.3\n" in out
    assert sweep.folders() == [*RATES]
    assert sweep.steps("run-3") == list(range(1, 10))


def test_another_model_is_refused_and_what_is_there_stays_as_it_was(sweep):
    before = (sweep.runs / "run-3" / "config.toml").read_bytes()
    out = sweep.train("--resume", *settings("model.hidden=[8]"), code=2)
    assert "the checkpoint has model.hidden = [16], not [8]" in out
    assert (sweep.runs / "run-3" / "config.toml").read_bytes() == before
    assert (sweep.runs / "run-3" / "result.json").exists()
    assert sweep.folders() == [*RATES]


def test_a_refused_start_leaves_no_folder(runs):
    runs.train(*settings("data.path=/nonexistent"), code=2)
    assert runs.folders() == []


def test_what_a_killed_start_has_left_is_no_obstacle(runs):
    (runs.runs / "run").mkdir(parents=True)
    (runs.runs / "run" / "config.toml.partial").write_text("[run]\nna")
    (runs.runs / "run" / "run.lock").write_text("")
    runs.train()
    assert runs.folders() == ["run"]
    assert runs.steps("run")[-1] == 6
    assert not (runs.runs / "run" / "run.lock").exists(), "the lock goes with its run"


# Whose holder it is cannot be read: whoever it was is given 20 seconds to show a sign of life, and the other ranks are told of the wait.
def test_half_a_lock_is_waited_for_longer_than_ranks_wait_for_each_other(onebatch, runs):
    runs.train(*settings("run.max_steps=2", "checkpoint.every_steps=1"))
    (runs.runs / "run" / "result.json").unlink()
    (runs.runs / "run" / "run.lock").write_text('{"host": "no')
    onebatch.run(2, "train", runs.config, "--resume", *settings("comm.timeout_seconds=3"))
    assert runs.steps("run")[-1] == 6
    assert runs.folders() == ["run"]


# Nothing to go on with; killed before the first checkpoint; stopped; interrupted again and again: one folder.
def test_a_run_that_is_interrupted_again_and_again_has_one_folder(onebatch, runs):
    process = runs.begun("run", "--resume")
    process.kill()
    assert "there is no run run in" in process.communicate()[0], "--resume begins a new run where there is none, and says so"
    assert (runs.runs / "run" / "profile.json").exists()
    assert not (runs.runs / "run" / "checkpoints").exists()

    out = stop(runs.begun("run", "--resume"))
    assert "has ended, and has no checkpoint: it begins again there" in out
    first = runs.steps("run")
    assert first == list(range(1, len(first) + 1)), "each step once"
    assert runs.folders() == ["run"]

    command = re.search(r"to go on: (.*)\n", out).group(1)
    assert command.endswith("--resume")
    assert str(runs.config) in command
    done = onebatch.finish(shlex.split(command) + settings(f"run.max_steps={first[-1] + 3}"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resumed from" in done.stdout
    assert runs.folders() == ["run"]
    assert runs.steps("run") == list(range(1, first[-1] + 4))


@pytest.fixture(scope="module")
def requeued(onebatch, tmp_path_factory):
    """Two jobs of one name, both stopped."""
    made = Runs(onebatch, tmp_path_factory.mktemp("requeued"))
    for name in ("run", "run-2"):
        stop(made.begun(name, *settings(f"optimizer.lr={RATES[name]}")))
    return made


@pytest.mark.parametrize("name", ("run", "run-2"))
def test_of_two_jobs_of_one_name_each_finds_its_own_run(requeued, name):
    before = requeued.steps(name)[-1]
    out = stop(requeued.begun(name, "--resume", *settings(f"optimizer.lr={RATES[name]}")))
    assert f"{name} goes on\n" in out
    assert "differs" not in out
    assert requeued.steps(name)[-1] > before
    assert requeued.folders() == ["run", "run-2"]


def test_a_checkpoints_own_run_goes_on(requeued):
    out = stop(requeued.begun("run", *settings(f"checkpoint.resume={requeued.runs}/run", "optimizer.lr=0.05")))
    assert "run goes on\n" in out
    assert "resumed from" in out
    assert requeued.folders() == ["run", "run-2"]


def test_another_run_begins_from_a_checkpoint(requeued):
    out = requeued.train(*settings(f"checkpoint.resume={requeued.runs}/run", "run.name=other", "run.max_steps=1"))
    assert "resumed from" in out
    assert requeued.folders() == ["other", "run", "run-2"]


def test_a_run_has_one_writer(runs):
    process = runs.begun("run")
    out = runs.train("--resume", *ENDLESS, code=2)
    assert f"run is in use: process {process.pid} on {socket.gethostname()}, since 2" in out
    runs.train()
    assert runs.folders() == ["run", "run-2"]
    process.kill()
    process.communicate()
    assert (runs.runs / "run" / "run.lock").exists(), "a killed process leaves its lock"
    stop(runs.begun("run", "--resume"))
    assert runs.folders() == ["run", "run-2"], "which is in nobody's way"


def test_a_lock_of_another_machine_that_shows_signs_of_life_holds(runs):
    stop(runs.begun("run"))
    lock = runs.runs / "run" / "run.lock"
    lock.write_text('{"host": "node3", "kernel": "another", "process": 17, "since": "2026-01-31 12:00:00 UTC"}\n')
    process = runs.start("--resume", *ENDLESS)
    while process.poll() is None:
        os.utime(lock)
        time.sleep(0.2)
    out = process.communicate()[0]
    assert process.returncode == 2, out
    assert "run is in use: process 17 on node3, since 2026-01-31 12:00:00 UTC" in out


def pytest_generate_tests(metafunc):
    if "at_once" in metafunc.fixturenames:
        times, at_once = (20, 2) if metafunc.config.getoption("--full") else (3, 5)
        metafunc.parametrize("at_once", [at_once] * times)


def test_starts_of_one_name_at_the_same_moment_are_as_many_runs_each_whole(runs, at_once):
    processes = [runs.start(*settings(f"optimizer.lr=0.0{i + 1}"), "--json", runs.path / f"{i}.json") for i in range(at_once)]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * at_once, "\n".join(outputs)
    taken = [pathlib.Path(read_json(runs.path / f"{i}.json")["run_dir"]) for i in range(at_once)]
    assert len(set(taken)) == at_once == len(runs.folders())
    for i, folder in enumerate(taken):
        assert f"\nlr = 0.0{i + 1} " in (folder / "config.toml").read_text()
        assert runs.steps(folder.name) == [1, 2, 3, 4, 5, 6]
