#!/usr/bin/env python3
"""What carries the gradient changes time and nothing else: overlap, buckets, small shared memory; bytes per step; the timeline; the benchmark."""
from common import *

FIXED = ["--set", "run.epochs=1", "--set", 'batch.last_batch="drop"', "--set", "batch.global_batch_size=240", "--quiet"]


def shares(ranks, accumulation=2):
    return ["--set", f"batch.micro_batch_size={240 // ranks // accumulation}", "--set", f"batch.gradient_accumulation_steps={accumulation}"]


def losses(s, name, ranks, *arguments):
    run(ranks, "train", s.config, *FIXED, *shares(ranks), "--set", f"run.name={name}", "--json", s.path / "r.json", *arguments)
    return [line["loss"] for line in read_json_lines(s.runs / name / "metrics.jsonl")], read_json(s.path / "r.json")


with Scratch() as s:
    for ranks in (2, 3):
        plain, result = losses(s, f"plain{ranks}", ranks)
        check(result["mended_replicas"] == 0, "replicas stay the same", str(result))
        for name, extra in {"overlap": ["--set", "comm.overlap=true"], "small-buckets": ["--set", "comm.bucket_cap_mb=0.001"],
                            "overlap-small-buckets": ["--set", "comm.overlap=true", "--set", "comm.bucket_cap_mb=0.01"],
                            "checked": ["--set", "comm.check_replicas_every_steps=1"]}.items():
            if ranks == 3 and name != "overlap-small-buckets":
                continue
            check(losses(s, f"{name}{ranks}", ranks, *extra)[0] == plain, f"{name} on {ranks} ranks: the losses, bit for bit")
        rounded, half = losses(s, f"bfloat16-{ranks}", ranks, "--set", 'comm.reduce_dtype="bfloat16"')
        check(rounded != plain and all(abs(a - b) < 0.02 * b for a, b in zip(rounded, plain)), "bfloat16 is near, and not the same", f"{rounded}\n{plain}")
        check(0.5 < half["reduced_bytes_per_step"] / result["reduced_bytes_per_step"] < 0.52, "bfloat16 halves the bytes", str(half))

    counted = {}
    for accumulation in (1, 12):
        run(2, "train", s.config, *FIXED, *shares(2, accumulation), "--set", f"run.name=bytes{accumulation}", "--json", s.path / "r.json")
        counted[accumulation] = read_json(s.path / "r.json")["reduced_bytes_per_step"]
    check(counted[1] == counted[12] > 0, "bytes per step do not depend on accumulation", str(counted))

    out = run(2, "train", s.config, "--set", "run.epochs=1", "--set", "run.name=timeline", "--set", "comm.overlap=true", "--timeline", s.path / "trace.json")
    check("perfetto" in out, "the timeline is announced", out)
    events = read_json(s.path / "trace.json")["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    for rank in (0, 1):
        names = {event["name"] for event in spans if event["pid"] == rank}
        check({"load", "micro-batch", "bucket", "gradient", "sums", "optimizer", "validation", "checkpoint"} <= names, f"rank {rank}'s spans", str(names))
    ends = [[event["ts"] + event["dur"] for event in spans if event["pid"] == rank and event["name"] == "sums"] for rank in (0, 1)]
    check(len(ends[0]) == len(ends[1]) > 5 and sorted(abs(a - b) for a, b in zip(*ends))[len(ends[0]) // 2] < 2000, "ranks leave a reduction together", str(ends))

    run(2, "bench", "all-reduce", "--max-bytes", "70000", "--json", s.path / "bench.json")
    bench = read_json(s.path / "bench.json")
    check(bench["ranks"] == 2 and [size["bytes"] for size in bench["sizes"]] == [4**i for i in range(1, 9)], "the sizes", str(bench))
    check({"seconds", "mpi_seconds", "mpi_best_bucket_seconds", "algbw", "busbw"} <= bench["sizes"][0].keys(), "the benchmark's fields", str(bench))
    check(all(size["busbw"] == size["algbw"] > 0 for size in bench["sizes"]), "for two ranks the bus carries what the algorithm does", str(bench))
    run(1, "bench", "all-reduce", "--max-bytes", "1000")
    check("all-reduce" in run(1, "bench", "loader", code=2), "an unknown benchmark")

    # Shared memory too small, in a mount namespace of its own: said, and the same losses.
    reference = losses(s, "roomy", 2)[0]
    allowed = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True).returncode == 0
    if not allowed:
        print("mount namespaces are not allowed here: small shared memory was not tried")
    for size, words in (("64m", None), ("900k", "no room")) if allowed else ():
        command = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"', "sh", *command_line(2, [
            "train", s.config, *FIXED[:-1], *shares(2), "--set", f"run.name=shm{size}"])]
        done = subprocess.run(command, cwd=ROOT, env={**ENVIRONMENT, "OMPI_MCA_btl_vader_backing_directory": "/tmp"}, capture_output=True, text=True, timeout=120)
        check(done.returncode == 0, f"/dev/shm of {size}", done.stdout + done.stderr)
        found = [line["loss"] for line in read_json_lines(s.runs / f"shm{size}" / "metrics.jsonl")]
        check(found == reference, f"/dev/shm of {size}: the same losses", f"{found}\n{reference}")
        check(words is None or words in done.stdout + done.stderr, f"/dev/shm of {size} is said", done.stdout + done.stderr)

print("communication holds")
