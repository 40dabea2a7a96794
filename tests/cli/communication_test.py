"""What carries the gradient changes time and nothing else: overlap, buckets, small shared memory; bytes per step; the timeline; the benchmark."""
import subprocess

import pytest

from program import Scratch, read_json, read_json_lines, settings

FIXED = ("run.epochs=1", 'batch.last_batch="drop"', "batch.global_batch_size=240")
CARRIED = {"overlap": ("comm.overlap=true",), "small-buckets": ("comm.bucket_cap_mb=0.001",), "overlap-small-buckets": ("comm.overlap=true", "comm.bucket_cap_mb=0.01"),
           "checked": ("comm.check_replicas_every_steps=1",)}


def shares(ranks, accumulation=2):
    return f"batch.micro_batch_size={240 // ranks // accumulation}", f"batch.gradient_accumulation_steps={accumulation}"


def losses_of(scratch):
    return [line["loss"] for line in read_json_lines(scratch.runs / "run" / "metrics.jsonl")]


class Trained:
    def __init__(self, program, path, ranks, *pairs, accumulation=2):
        scratch = Scratch(path)
        program.run(ranks, "train", scratch.config, *settings(*FIXED, *shares(ranks, accumulation), *pairs), "--quiet", "--json", path / "r.json")
        self.result = read_json(path / "r.json")
        self.losses = losses_of(scratch)


@pytest.fixture(scope="module")
def plain(onebatch, tmp_path_factory):
    """By ranks."""
    return {ranks: Trained(onebatch, tmp_path_factory.mktemp("plain"), ranks) for ranks in (2, 3)}


@pytest.mark.parametrize("ranks", (2, 3))
def test_replicas_stay_the_same(plain, ranks):
    assert plain[ranks].result["mended_replicas"] == 0


@pytest.mark.parametrize("ranks, name", (*((2, name) for name in CARRIED), (3, "overlap-small-buckets")))
def test_the_losses_are_the_same_bit_for_bit(onebatch, tmp_path, plain, ranks, name):
    assert Trained(onebatch, tmp_path, ranks, *CARRIED[name]).losses == plain[ranks].losses


@pytest.mark.parametrize("ranks", (2, 3))
def test_bfloat16_is_near_and_not_the_same_and_halves_the_bytes(onebatch, tmp_path, plain, ranks):
    rounded = Trained(onebatch, tmp_path, ranks, 'comm.reduce_dtype="bfloat16"')
    assert rounded.losses != plain[ranks].losses
    assert rounded.losses == pytest.approx(plain[ranks].losses, rel=0.02)
    assert 0.5 < rounded.result["reduced_bytes_per_step"] / plain[ranks].result["reduced_bytes_per_step"] < 0.52


def test_bytes_per_step_do_not_depend_on_accumulation(onebatch, tmp_path_factory):
    once, often = (Trained(onebatch, tmp_path_factory.mktemp("bytes"), 2, accumulation=accumulation).result["reduced_bytes_per_step"] for accumulation in (1, 12))
    assert once == often > 0


@pytest.fixture(scope="module")
def spans(onebatch, tmp_path_factory):
    """A timeline's."""
    made = Scratch(tmp_path_factory.mktemp("timeline"))
    out = onebatch.run(2, "train", made.config, *settings("run.epochs=1", "comm.overlap=true"), "--timeline", made.path / "trace.json")
    assert "perfetto" in out
    return [event for event in read_json(made.path / "trace.json")["traceEvents"] if event["ph"] == "X"]


@pytest.mark.parametrize("rank", (0, 1))
def test_the_timeline_has_every_rank(spans, rank):
    assert {"load", "micro-batch", "bucket", "gradient", "sums", "optimizer", "validation", "checkpoint"} <= {event["name"] for event in spans if event["pid"] == rank}


def test_ranks_share_a_clock(spans):
    """None has a sum before the other has come to it."""
    sums = [[event for event in spans if event["pid"] == rank and event["name"] == "sums"] for rank in (0, 1)]
    assert len(sums[0]) == len(sums[1]) > 5
    early = [max(a["ts"], b["ts"]) - min(a["ts"] + a["dur"], b["ts"] + b["dur"]) for a, b in zip(*sums)]
    assert sorted(early)[len(early) // 2] < 1000


def test_the_benchmark_measures_each_size(onebatch, tmp_path):
    onebatch.run(2, "bench", "all-reduce", "--max-bytes", "70000", "--json", tmp_path / "bench.json")
    bench = read_json(tmp_path / "bench.json")
    assert bench["ranks"] == 2
    assert [size["bytes"] for size in bench["sizes"]] == [4**i for i in range(1, 9)]
    assert {"seconds", "mpi_seconds", "mpi_best_bucket_seconds", "algbw", "busbw"} <= bench["sizes"][0].keys()
    assert all(size["busbw"] == size["algbw"] > 0 for size in bench["sizes"]), "for two ranks the bus carries what the algorithm does"


def test_the_benchmark_runs_on_one_rank(onebatch):
    onebatch.run(1, "bench", "all-reduce", "--max-bytes", "1000")


def test_an_unknown_benchmark_is_answered_with_those_there_are(onebatch):
    assert "all-reduce" in onebatch.run(1, "bench", "loader", code=2)


def run_with_shared_memory(onebatch, size, *arguments):
    """Two ranks in a mount namespace of their own; returns what was said."""
    if subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True).returncode != 0:
        pytest.skip("mount namespaces are not allowed here: small shared memory was not tried")
    command = onebatch.command_line(2, *arguments)
    mounted = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"', "sh", *command]
    done = onebatch.finish(mounted, {"OMPI_MCA_btl_vader_backing_directory": "/tmp"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("size, words", (("64m", None), ("900k", "no room")))
def test_shared_memory_that_is_small_is_said_and_the_losses_are_the_same(onebatch, scratch, plain, size, words):
    said = run_with_shared_memory(onebatch, size, "train", scratch.config, *settings(*FIXED, *shares(2)))
    assert losses_of(scratch) == plain[2].losses
    assert words is None or words in said


# At 6 MiB there is room for the window that copies go through, and none for two buffers of 4 MB.
@pytest.mark.parametrize("size", ("900k", "6m"))
def test_the_benchmark_says_that_shared_memory_is_small(onebatch, size):
    assert run_with_shared_memory(onebatch, size, "bench", "all-reduce", "--max-bytes", "4000000").count("no room") == 1
