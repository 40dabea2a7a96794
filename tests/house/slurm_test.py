#!/usr/bin/env python3
"""Runs docker/slurm/onebatch.sbatch against doubles of Slurm's commands: the notice reaches the ranks, which save, and the job is put back in the queue."""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 60

# srun --mpi=pmix … PROGRAM: starts the ranks, here with mpirun, and says where they are. Slurm's own variables would make mpirun ask for Slurm.
SRUN = """#!/usr/bin/env bash
if [ "$1" = --mpi=list ]; then echo "MPI plugin types are... pmix"; exit; fi
while [[ "$1" == --* ]]; do shift; done
echo $$ > "$DOUBLES/step"
exec env -u SLURM_JOB_ID -u SLURM_NTASKS mpirun -np 2 --bind-to none --oversubscribe "$@"
"""
SCANCEL = '#!/usr/bin/env bash\nkill -USR1 "$(cat "$DOUBLES/step")"\n'
SCONTROL = '#!/usr/bin/env bash\necho "$*" > "$DOUBLES/requeued"\n'


def wait_for(file, job):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (file.exists() and file.stat().st_size > 0):
        if time.monotonic() > deadline or job.poll() is not None:
            job.kill()
            sys.exit(f"{file} did not come\n{job.communicate()[0]}")
        time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    build = parser.parse_args().build.resolve()
    with tempfile.TemporaryDirectory(prefix="onebatch-slurm-") as folder:
        scratch = pathlib.Path(folder)
        for name, text in (("srun", SRUN), ("scancel", SCANCEL), ("scontrol", SCONTROL)):
            (scratch / name).write_text(text)
            (scratch / name).chmod(0o755)
        environment = {**os.environ, "PATH": f"{scratch}:{build}:{os.environ['PATH']}", "DOUBLES": folder, "SLURM_JOB_ID": "17", "SLURM_NTASKS": "2"}
        problems = []
        for time_in_queue in ("first", "second"):
            job = subprocess.Popen(["bash", ROOT / "docker/slurm/onebatch.sbatch", "configs/demo.toml", "--set", "run.epochs=100000", "--set",
                                    f"run.output_dir={scratch}/runs"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            wait_for(scratch / "runs/demo/metrics.jsonl", job)
            job.send_signal(signal.SIGUSR1)
            said, _ = job.communicate(timeout=DEADLINE_SECONDS)
            if job.returncode != 75:
                problems.append(f"the {time_in_queue} time the job's exit code is {job.returncode}, not 75")
            if not list((scratch / "runs/demo/checkpoints").glob("step-*/manifest.json")):
                problems.append("nothing was saved")
            if not (scratch / "requeued").exists() or (scratch / "requeued").read_text() != "requeue 17\n":
                problems.append("the job was not put back in the queue")
            if ("resumed from" in said) != (time_in_queue == "second") or [path.name for path in (scratch / "runs").iterdir()] != ["demo"]:
                problems.append(f"the {time_in_queue} time the job did not go on in its own run")
            (scratch / "runs/demo/metrics.jsonl").unlink()
            (scratch / "requeued").unlink(missing_ok=True)
        print("\n".join(problems + [said[-3000:]]) if problems else "saved and requeued")
        return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
