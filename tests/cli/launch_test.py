"""`onebatch launch`: the line that it shows and runs, and what signals do to it."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

from program import DIGITS_MLP, Scratch, read_json, settings


@pytest.fixture
def shown(onebatch, tmp_path):
    """The words of the line for these options, up to the program."""
    scratch = Scratch(tmp_path)

    def line(*options, environment=None):
        done = onebatch.finish([onebatch.path, "launch", *options, "--show", "train", scratch.config, "--set", "run.name=two words"], environment)
        assert done.returncode == 0, done.stderr
        before, after = done.stderr.strip().split(f"{onebatch.path} ")
        assert after == f"train {scratch.config} --set 'run.name=two words'"
        return before.split()

    return line


def test_a_rank_for_each_device_that_is_played(shown):
    assert shown()[:5] == ["mpirun", "-np", "4", "--bind-to", "none"]


def test_a_rank_for_each_device_that_an_assignment_plays(onebatch, tmp_path):
    played = "simulate.devices=[{slowdown = 1.0}, {slowdown = 2.0}, {slowdown = 1.5}]"
    for words in (["--set", played], [f"--set={played}"]):
        done = onebatch.finish([onebatch.path, "launch", "--show", "train", Scratch(tmp_path).config, *words])
        assert done.stderr.split()[:3] == ["mpirun", "-np", "3"], words


def test_as_many_ranks_as_asked_for(shown):
    assert shown("-np", "3")[:3] == shown("-n", "3")[:3] == ["mpirun", "-np", "3"]
    assert "--oversubscribe" in shown("-np", "4000")


def test_one_rank_needs_no_mpirun(shown):
    assert shown("-np", "1", environment={"PATH": ""}) == []


def test_root_is_said_to_mpirun(shown):
    assert ("--allow-run-as-root" in shown("-np", "2")) == (os.geteuid() == 0)


def test_hosts_have_their_ranks_and_what_they_need_to_know(shown):
    line = shown("--hosts", "a:2,b", environment={"OMP_NUM_THREADS": "3"})
    assert line[:3] == ["mpirun", "-np", "3"]
    assert line[line.index("--host") + 1] == "a:2,b:1"
    assert line[line.index("-x") + 1] == "OMP_NUM_THREADS"


@pytest.mark.parametrize(("options", "words"), [
    ([], "launch what?"),
    (["-np", "2", "trian", "x"], "did you mean train?"),
    (["-np", "2", "train"], "CONFIG is required"),
    (["-np", "0", "train", "x"], "--np"),
    (["--hosts", "a:x", "train", "x"], "as in a:2,b:4"),
    (["--hosts", "a:2", "-np", "3", "train", "x"], "leave -np out"),
    (["launch", "train", "x"], "launch what?"),
])
def test_a_mistake_says_what_to_write(onebatch, options, words):
    done = onebatch.finish([onebatch.path, "launch", *options])
    assert done.returncode == 2
    assert words in done.stdout + done.stderr


def test_without_mpirun_it_says_what_to_install(onebatch, tmp_path):
    done = onebatch.finish([onebatch.path, "launch", "-np", "2", "train", Scratch(tmp_path).config], {"PATH": str(tmp_path)})
    assert done.returncode == 2
    assert "apt-get install openmpi-bin" in done.stderr


def test_an_mpirun_that_cannot_be_started_is_named(onebatch, tmp_path):
    (tmp_path / "mpirun").write_text("#!/nowhere\n")
    (tmp_path / "mpirun").chmod(0o755)
    done = onebatch.finish([onebatch.path, "launch", "-np", "2", "train", Scratch(tmp_path).config], {"PATH": str(tmp_path)})
    assert done.returncode == 2, done.stderr
    assert f"cannot start {tmp_path}/mpirun: No such file or directory" in done.stderr


def test_a_folder_called_mpirun_is_none(onebatch, tmp_path):
    (tmp_path / "mpirun").mkdir()
    done = onebatch.finish([onebatch.path, "launch", "-np", "2", "train", Scratch(tmp_path).config], {"PATH": str(tmp_path)})
    assert done.returncode == 2, done.stderr
    assert "which is not in PATH" in done.stderr


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_a_folder_for_temporary_files_that_is_gone_is_said(onebatch, tmp_path, ranks):
    done = onebatch.finish([onebatch.path, "launch", "-np", ranks, "train", Scratch(tmp_path).config], {"TMPDIR": f"{tmp_path}/gone"})
    assert done.returncode == 2, done.stderr
    assert f"TMPDIR={tmp_path}/gone" in done.stderr and "export TMPDIR=/tmp" in done.stderr


def test_under_mpirun_it_is_refused(onebatch, tmp_path):
    done = onebatch.finish(onebatch.command_line(2, "launch", "-np", "2", "train", Scratch(tmp_path).config))
    assert done.returncode == 2
    assert "without mpirun" in done.stderr


JOB = {"SLURM_JOB_ID": "17", "SLURM_NTASKS": "3", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}  # in its script, after sbatch(1)
STEP = {**JOB, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3"}  # of its srun


def test_in_a_slurm_jobs_script_there_is_a_rank_for_each_task(onebatch):
    done = onebatch.finish([onebatch.path, "launch", "--show", "train", "x.toml"], JOB)
    assert done.stderr.split()[:5] == ["mpirun", "-np", "3", "--bind-to", "none"]
    assert "--oversubscribe" not in done.stderr, "mpirun has a slot for each task"
    more = onebatch.finish([onebatch.path, "launch", "-np", "4", "--show", "train", "x.toml"], JOB)
    assert "--oversubscribe" in more.stderr


def test_a_slurm_task_is_refused(onebatch, tmp_path):
    done = onebatch.finish([onebatch.path, "launch", "-np", "2", "train", Scratch(tmp_path).config], STEP)
    assert done.returncode == 2
    assert "without mpirun or srun" in done.stderr


SCRIPT = {name: value for name, value in JOB.items() if name != "SLURM_JOB_ID"}  # mpirun would ask Slurm for its nodes


def test_direct_commands_in_a_slurm_jobs_script_are_no_task(onebatch, tmp_path):
    scratch = Scratch(tmp_path, DIGITS_MLP)
    onebatch.run(1, "plan", scratch.config, environment=JOB)
    onebatch.run(1, "train", scratch.config, *settings("run.max_steps=1"), environment=JOB)
    assert re.search(r"^ok +all-reduce +1 MiB over", onebatch.run(1, "doctor", environment=SCRIPT), re.M)
    assert "one of 3 processes" in onebatch.run(1, "plan", scratch.config, environment=STEP, code=2)
    assert "one of 3 processes" in onebatch.run(1, "doctor", environment=STEP, code=1)


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_ranks_train_out_of_a_slurm_jobs_script(onebatch, tmp_path, ranks):
    scratch = Scratch(tmp_path, DIGITS_MLP)
    done = onebatch.finish([onebatch.path, "launch", "-np", ranks, "train", scratch.config, *settings("run.max_steps=2", "run.name=run")], SCRIPT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": train ") == 1, "its first line, once"
    assert len(read_json(scratch.runs / "run" / "plan.json")["ranks"]) == int(ranks)


def test_a_mistake_is_said_once_and_by_the_program_alone(onebatch, tmp_path):
    done = onebatch.finish([onebatch.path, "launch", "-np", "2", "train", Scratch(tmp_path).config, "--set", "optimizer.lrr=1"])
    assert done.returncode == 2
    shown, *said = done.stderr.splitlines()
    assert shown.startswith("mpirun ")
    assert said == ["--set optimizer.lrr: no such key; did you mean optimizer.lr?", "onebatch: 1 mistake in the configuration"]


def test_ranks_train_where_mpirun_asks_root_for_more(onebatch, tmp_path):
    scratch = Scratch(tmp_path)
    without = {"OMPI_ALLOW_RUN_AS_ROOT": None, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": None}
    done = onebatch.finish([onebatch.path, "launch", "-np", "2", "train", scratch.config, "--set", "run.epochs=1"], without)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^ *1 +cpu", done.stdout + done.stderr, re.M | re.I), "the second rank's row"


class Endless:
    """A run that goes on until it is told not to."""

    def __init__(self, onebatch, path, ranks, before=(), environment=None, where=None):
        self.scratch = Scratch(path)
        command = [*before, onebatch.path, "launch", *(where or ("-np", str(ranks))), "train", str(self.scratch.config), "--set", "run.epochs=1000000"]
        self.process = onebatch.start_command(command, environment, start_new_session=True)

    def until_it_trains(self):
        deadline = time.monotonic() + 60
        while not (self.scratch.runs / "run/metrics.jsonl").exists():
            assert time.monotonic() < deadline and self.process.poll() is None, "it has made no step"
            time.sleep(0.05)

    def end(self):
        said = self.process.communicate(timeout=60)[0]
        return self.process.returncode, said

    def hears(self, *numbers):
        """One after the other, while its ranks stand still, so that nothing is saved meanwhile."""
        self.send_to_others(signal.SIGSTOP)
        for number in numbers:
            self.process.send_signal(number)
            time.sleep(0.7)
        self.send_to_others(signal.SIGCONT)

    def send_to_others(self, number):
        for rank in self.left():
            if int(rank) != self.process.pid:
                os.kill(int(rank), number)

    def left(self):
        """Processes that still have this configuration."""
        return subprocess.run(["pgrep", "-f", str(self.scratch.config)], capture_output=True, text=True).stdout.split()


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_rank_that_is_killed_is_said(onebatch, tmp_path):
    run = Endless(onebatch, tmp_path, 2)
    run.until_it_trains()
    (mpirun,) = children(run.process.pid)
    os.kill(children(mpirun)[1], signal.SIGKILL)
    code, said = run.end()
    assert code not in (0, 2, 75)
    assert "SIGKILL" in said or "the loss of rank 1" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_the_first_signal_saves(onebatch, tmp_path, number):
    run = Endless(onebatch, tmp_path, 2)
    run.until_it_trains()
    run.process.send_signal(number)
    code, said = run.end()
    assert code == 75, said
    assert (run.scratch.runs / "run/checkpoints/latest").exists()


def test_under_nohup_a_terminal_that_closes_is_nothing(onebatch, tmp_path):
    run = Endless(onebatch, tmp_path, 2, before=["nohup"])
    run.until_it_trains()
    run.process.send_signal(signal.SIGHUP)
    time.sleep(1.5)
    assert run.process.poll() is None
    run.process.send_signal(signal.SIGUSR1)
    code, said = run.end()
    assert code == 75 and "saving, then ending" not in said, said


def test_ranks_on_other_nodes_of_a_job_hear_the_signal(onebatch, tmp_path):
    """They see nothing of the launcher's folder. Here without Slurm, whose nodes mpirun would ask for."""
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f"#!/bin/sh\nONEBATCH_LAUNCH_FOLDER=/nowhere; export ONEBATCH_LAUNCH_FOLDER; unset SLURM_JOB_ID SLURM_NTASKS SLURM_PROCID SLURM_LOCALID\nexec {shutil.which('mpirun')} --oversubscribe \"$@\"\n")
    mpirun.chmod(0o755)
    run = Endless(onebatch, tmp_path, 2, environment={**JOB, "SLURM_JOB_NUM_NODES": "2", "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    run.until_it_trains()
    run.process.send_signal(signal.SIGUSR1)
    code, said = run.end()
    assert code == 75, said


@pytest.mark.parametrize("ranks, where", [(1, None), (2, None), (1, ("--hosts", "localhost:1"))])
def test_a_second_one_ends_at_once(onebatch, tmp_path, ranks, where):
    run = Endless(onebatch, tmp_path, ranks, where=where)
    run.until_it_trains()
    run.hears(signal.SIGINT, signal.SIGINT)
    code, said = run.end()
    assert code == 130, said
    deadline = time.monotonic() + 10
    while run.left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not run.left()


@pytest.mark.parametrize("ranks", [1, 2])
def test_notice_before_the_first_one_is_no_first_one(onebatch, tmp_path, ranks):
    run = Endless(onebatch, tmp_path, ranks)
    run.until_it_trains()
    run.hears(signal.SIGUSR1, signal.SIGTERM)
    code, said = run.end()
    assert code == 75, said
    assert (run.scratch.runs / "run/checkpoints/latest").exists()


def test_the_folder_that_ranks_report_to_is_gone(onebatch, tmp_path):
    scratch = Scratch(tmp_path)
    done = onebatch.finish([onebatch.path, "launch", "-np", "2", "train", scratch.config, "--set", "run.epochs=1"], {"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("onebatch-launch-*"))
