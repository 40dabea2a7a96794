#!/usr/bin/env python3
"""Each mistake that a user makes: a clear message, the right exit code, nothing lost."""
from common import *

with Scratch() as s:
    # Arguments.
    check("did you mean train" in run(1, "trian", s.config, code=2), "a mistyped command")
    check("not in this version" in run(1, "export", s.config, code=2), "a command of a later version")
    run(1, code=2)
    run(1, "train", code=2)
    check("nowhere.toml" in run(1, "train", "nowhere.toml", code=2), "a missing configuration")
    out = run(2, "train", "nowhere.toml", code=2)
    check(out.count("cannot read nowhere.toml") == 1, "a mistake is said once", out)

    # Configuration: all at once, from rank 0 alone, before anything is made.
    out = run(3, "train", s.config, "--set", "optimizer.lrr=1", "--set", "batch.global_batch_size=0", code=2)
    check(out.count("did you mean optimizer.lr") == 1 and "batch.global_batch_size: write" in out and "2 mistakes" in out, "two mistakes at once", out)
    check(not s.runs.exists(), "a mistake leaves no run behind", out)

    # Data.
    out = run(2, "train", s.config, "--set", "data.path=/nonexistent", code=2)
    check("train-images-idx3-ubyte" in out and "/nonexistent" in out, "missing data", out)
    (s.path / "bad").mkdir()
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        (s.path / "bad" / name).write_bytes(b"\0\0\x08\x03\0\0\0\x05")
    check("whole IDX file" in run(1, "train", s.config, "--set", f"data.path={s.path}/bad", code=2), "torn data")

    # Too many ranks for the devices that are played, a GPU that is not there, memory that does not suffice.
    check("mpirun -np 4" in run(5, "train", s.config, code=2), "too many ranks")
    out = run(1, "train", s.config, "--set", "run.device=cuda", "--set", "simulate.devices=[]", "--set", "run.name=gpu", code=(0, 2))
    check("CUDA" in out or "done" in out, "no GPU", out)
    out = run(1, "train", s.config, "--set", 'simulate.devices=[{memory = "20KiB"}]', code=3)
    check("parameters, gradients and optimizer state" in out, "a model that does not fit", out)
    out = run(1, "train", s.config, "--set", 'simulate.devices=[{memory = "200KiB"}]', "--set", "batch.micro_batch_size=200", code=3)
    check("the largest that does is" in out, "a micro-batch that does not fit", out)

    # The run's folder: never somebody else's.
    (s.path / "mine").mkdir()
    (s.path / "mine" / "thesis.tex").write_text("years of work")
    out = run(1, "train", s.config, "--set", f"run.output_dir={s.path}", "--set", "run.name=mine", code=2)
    check("not a run's folder" in out and (s.path / "mine" / "thesis.tex").exists(), "a foreign folder", out)
    out = run(1, "train", s.config, "--set", "run.output_dir=/proc/nowhere", code=2)
    check("/proc/nowhere" in out, "a place that cannot be written", out)

    # A checkpoint of another run; a torn one; none.
    run(2, "train", s.config, "--quiet", "--set", "checkpoint.every_steps=5", "--set", "checkpoint.keep=0")
    out = run(2, "train", s.config, "--resume", "--set", "model.hidden=[32]", code=2)
    check("model.hidden is [32], the checkpoint has [64, 48]" in out, "another model", out)
    check("no checkpoint" in run(1, "eval", s.config, "--checkpoint", s.path, code=2), "no checkpoint")
    newest = s.runs / "run" / "checkpoints" / "step-18" / "model.safetensors"
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-5])
    out = run(1, "train", s.config, "--resume")
    check("is torn" in out and "step 15" in out, "a torn checkpoint gives way to the one before", out)
    newest.write_bytes(whole[:-5])
    check("is torn" in run(1, "train", s.config, "--resume", "--strict", code=2), "--strict makes that an error")
    weights = s.path / "w.safetensors"
    weights.write_bytes(whole[:100])
    check("safetensors" in run(1, "train", s.config, "--set", f"model.weights={weights}", "--set", "run.name=w", code=2), "torn weights")

    # A full disk (a quota stands in): the run ends, the message names the file, no half checkpoint.
    import resource
    small = (20000, 20000)
    done = subprocess.run(command_line(1, ["train", s.config, "--set", "run.name=full"]), cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=60,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, small))
    check(done.returncode == 1 and "cannot write" in done.stderr, f"a full disk returned {done.returncode}", done.stderr)
    left = [p.name for p in (s.runs / "full" / "checkpoints").iterdir()] if (s.runs / "full" / "checkpoints").exists() else []
    check(left == [], "a full disk leaves no half checkpoint", str(left))

    # A profile that is none.
    (s.path / "p.json").write_text('{"ranks": [{"max_micro_batch": 4}]}')
    check("step_seconds" in run(1, "plan", s.config, "--profile", s.path / "p.json", code=2), "a bad profile")

    # Four processes under Slurm without its MPI are not four silent copies.
    alone = {key: value for key, value in ENVIRONMENT.items() if not key.startswith(("OMPI_COMM", "PMIX", "PMI_"))}
    done = subprocess.run([PROGRAM, "train", s.config], cwd=ROOT, env={**alone, "SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, capture_output=True, text=True, timeout=60)
    check(done.returncode == 2 and "srun --mpi=pmix" in done.stderr, "Slurm without MPI", done.stderr)
print("mistakes are answered")
