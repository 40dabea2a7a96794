"""Exact BatchNorm keeps something of every sample of a share: plans leave room for it, or it goes to host memory."""
import pytest

from program import Scratch, read_json, settings

RESNET = """
[run]
max_steps = 3
output_dir = "{runs}"
[batch]
global_batch_size = 256
[model]
kind = "resnet"
depth = 20
stem = "cifar"
[data]
kind = "synthetic"
shape = [3, 8, 8]
size = 1024
[data.validation]
[precision]
compute = "float64"
parameters = "float64"
[batch_norm]
mode = "exact"
[probe]
cache = false
steps_per_trial = 1
"""


def train(program, scratch, memories, offload, *pairs, more=(), code=0):
    """On two devices of so many MiB."""
    devices = ", ".join(f'{{memory = "{mebibytes}MiB"}}' for mebibytes in memories)
    pairs = ("run.name=run", f"simulate.devices=[{devices}]", f'memory.offload="{offload}"', *pairs)
    return program.run(2, "train", scratch.config, *settings(*pairs), "--json", scratch.path / "r.json", *more, code=code)


def trained(memories, offload):
    @pytest.fixture(scope="module")
    def make(onebatch, tmp_path_factory):
        made = Scratch(tmp_path_factory.mktemp("run"), RESNET)
        made.out = train(onebatch, made, memories, offload)
        made.loss = read_json(made.path / "r.json")["validation_loss"]
        made.ranks = read_json(made.runs / "run" / "profile.json")["ranks"]
        made.shares = read_json(made.runs / "run" / "plan.json")["ranks"]
        return made

    return make


roomy = trained((400, 400), "auto")
tight = trained((28, 80), "never")
offloaded = trained((18, 18), "auto")


def test_what_has_room_stays_on_the_device(roomy):
    assert "host memory" not in roomy.out


def test_the_plan_leaves_room_for_what_is_kept(tight):
    assert "ran out of memory" not in tight.out
    assert "host memory" not in tight.out
    for rank, share in zip(tight.ranks, tight.shares, strict=True):
        memory = rank["memory"]
        largest = max(size for size, _ in share["micro_batches"])
        takes = share["samples"] * memory["kept_bytes_per_sample"] + largest * memory["activation_bytes_per_sample"]
        assert 0 < takes <= rank["room_bytes"] < rank["memory_limit_bytes"], tight.out


def test_a_share_makes_its_micro_batches_smaller(tight):
    assert max(size for size, _ in tight.shares[0]["micro_batches"]) < tight.ranks[0]["max_micro_batch"]


def test_what_has_no_room_goes_to_host_memory_which_is_said(offloaded):
    assert "rank 0's share on its device; did in host memory" in offloaded.out
    assert all(share["kept_in_host"] for share in offloaded.shares)


def test_without_host_memory_it_does_not_fit(onebatch, tmp_path):
    out = train(onebatch, Scratch(tmp_path, RESNET), (18, 18), "never", code=3)
    assert "exact BatchNorm keeps something of every sample" in out
    assert "memory.offload" in out


def test_it_is_the_same_run_wherever_things_are_kept(roomy, tight, offloaded):
    assert tight.loss == pytest.approx(roomy.loss, rel=1e-9)
    assert offloaded.loss == pytest.approx(roomy.loss, rel=1e-9)


def test_a_resumed_run_keeps_things_where_its_plan_says(onebatch, offloaded):
    out = train(onebatch, offloaded, (18, 18), "auto", "run.max_steps=5", more=("--resume",))
    assert "ran out of memory" not in out
    assert "did in host memory" not in out
