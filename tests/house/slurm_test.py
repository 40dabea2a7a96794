"""Runs docker/slurm/onebatch.sbatch against doubles of Slurm's commands: the notice reaches the ranks, which save, and the job is put back in the queue."""
import os
import pathlib
import signal
import subprocess
import time

import pytest

from program import ROOT

DEADLINE_SECONDS = 60
DOUBLES = {
    # srun --mpi=pmix … PROGRAM: starts the ranks, here with mpirun, and says where they are. Slurm's own variables would make mpirun ask for Slurm.
    "srun": """#!/usr/bin/env bash
if [ "$1" = --mpi=list ]; then echo "MPI plugin types are... pmix"; exit; fi
while [[ "$1" == --* ]]; do shift; done
echo $$ > "$DOUBLES/step"
exec env -u SLURM_JOB_ID -u SLURM_NTASKS mpirun -np 2 --bind-to none --oversubscribe "$@"
""",
    "scancel": '#!/usr/bin/env bash\nkill -USR1 "$(cat "$DOUBLES/step")"\n',
    "scontrol": '#!/usr/bin/env bash\necho "$*" > "$DOUBLES/requeued"\n',
}


class Job:
    """Noticed when it has done a step, and what it left then."""

    def __init__(self, scratch, environment):
        runs, requeued = scratch / "runs", scratch / "requeued"
        requeued.unlink(missing_ok=True)
        command = ["bash", ROOT / "docker/slurm/onebatch.sbatch", "configs/demo.toml", "--set", "run.epochs=100000", "--set", f"run.output_dir={runs}"]
        job = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        metrics = runs / "demo/metrics.jsonl"
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (metrics.exists() and metrics.stat().st_size > 0):
            if time.monotonic() > deadline or job.poll() is not None:
                job.kill()
                pytest.fail(f"{metrics} did not come\n{job.communicate()[0]}")
            time.sleep(0.05)
        job.send_signal(signal.SIGUSR1)
        self.said, _ = job.communicate(timeout=DEADLINE_SECONDS)
        self.code = job.returncode
        self.saved = list((runs / "demo/checkpoints").glob("step-*/manifest.json"))
        self.requeued = requeued.read_text() if requeued.exists() else ""
        self.folders = [path.name for path in runs.iterdir()]
        metrics.unlink()


@pytest.fixture(scope="module")
def jobs(request, tmp_path_factory):
    """The same job the first and the second time that it comes from the queue."""
    scratch = tmp_path_factory.mktemp("slurm")
    for name, text in DOUBLES.items():
        (scratch / name).write_text(text)
        (scratch / name).chmod(0o755)
    build = pathlib.Path(request.config.getoption("--build")).resolve()
    environment = {**os.environ, "PATH": f"{scratch}:{build}:{os.environ['PATH']}", "DOUBLES": str(scratch), "SLURM_JOB_ID": "17", "SLURM_NTASKS": "2"}
    return [Job(scratch, environment), Job(scratch, environment)]


@pytest.fixture(params=(0, 1), ids=("first", "second"))
def job(request, jobs):
    return jobs[request.param]


def test_the_notice_reaches_the_ranks_which_save(job):
    assert job.code == 75, job.said
    assert job.saved, job.said


def test_the_job_is_put_back_in_the_queue(job):
    assert job.requeued == "requeue 17\n", job.said


def test_it_goes_on_in_its_own_run_the_second_time(jobs):
    assert ["resumed from" in job.said for job in jobs] == [False, True]
    assert [job.folders for job in jobs] == [["demo"], ["demo"]]
