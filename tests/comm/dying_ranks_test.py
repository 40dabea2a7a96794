#!/usr/bin/env python3
"""Ranks that die in different ways: all others end soon, the message names the guilty one, the exit code is not 0."""
import os
import subprocess
import sys
import time

PROGRAM = sys.argv[1]
DEADLINE = 15
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def mpirun(ranks, mode):
    begin = time.monotonic()
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), PROGRAM, mode]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - begin


def expect(condition, what, output):
    if not condition:
        sys.exit(f"{what}\n{output}")


for ranks in (2, 3, 4):
    for mode, word, code in (("stuck", "more than comm.timeout_seconds", 4), ("abort", f"rank {ranks - 1} (", 1), ("leave", "9", 9)):
        returned, output, seconds = mpirun(ranks, mode)
        expect(seconds < DEADLINE, f"{mode} with {ranks} ranks took {seconds:.1f} s", output)
        expect(returned == code, f"{mode} with {ranks} ranks returned {returned}, not {code}", output)
        expect(word in output, f"{mode} with {ranks} ranks does not say {word!r}", output)
    returned, output, _ = mpirun(ranks, "none")
    expect(returned == 0, f"healthy {ranks} ranks returned {returned}", output)

slurm = {key: value for key, value in ENVIRONMENT.items() if not key.startswith(("OMPI_COMM", "PMIX", "PMI_"))}
slurm.update(SLURM_PROCID="0", SLURM_NTASKS="4", SLURM_LOCALID="0", SLURM_STEP_ID="0")
done = subprocess.run([PROGRAM, "none"], env=slurm, capture_output=True, text=True, timeout=60)
expect(done.returncode == 2 and "srun --mpi=pmix" in done.stderr, f"Slurm without MPI returned {done.returncode}", done.stderr)
print("all ranks ended")
