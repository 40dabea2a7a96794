"""The largest micro-batch that the probe finds on the stand-in, against runs of their own at sizes that are given, and what NCCL takes late."""
import json
import struct

import pytest
import torch

from null_gpu.families import Gpt2, ResNet50, UNet, exported_models
from null_gpu.runs import configuration
from program import read_json, read_json_lines, settings

CONFIGURATION = """
[run]
max_steps = 1
output_dir = "{folder}/runs"
name = "run"
device = "cuda"
cuda_graphs = false
[data]
kind = "safetensors"
path = "{folder}/data.safetensors"
inputs = ["x"]
target = "y"
[model]
kind = "exported"
path = "{folder}/model.pt2"
[optimizer]
kind = "adamw"
[batch]
global_batch_size = {samples}
replan = "never"
[probe]
steps_per_trial = 1
cache = false
[verify]
at_start = false
[checkpoint]
every_steps = 0
[log]
every_steps = 100
"""
TYPES = {torch.float32: "F32", torch.int64: "I64"}


def write_zeros(path, tensors):
    """A file of safetensors that takes no room: what is not written reads as zeros."""
    header, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    words = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(words)) + words)
        file.truncate(8 + len(words) + end)


def images(size):
    return lambda count: torch.empty(count, 3, size, size, device="meta"), lambda count: torch.empty(count, dtype=torch.int64, device="meta")


# name: the model, a sample's input and target, the most samples that are tried at once for each GB
MODELS = {
    "resnet50": (lambda: ResNet50(64, 1000), *images(128), 60),
    "gpt2_small": (lambda: Gpt2(768, 512, 50257), *[lambda count: torch.empty(count, 512, dtype=torch.int64, device="meta")] * 2, 10),
    "unet": (UNet, images(128)[0], lambda count: torch.empty(count, 128, 128, dtype=torch.int64, device="meta"), 25),
}
# Blocks of a large micro-batch are a share of the card, so what fits by their packing goes up and down with the size: the margin is for that.
BEYOND = 1.15
MOST_TRIALS = 8
# Steps after the probe: --full has all three, at 2, 6, 8, 24 and 80 GB, and a thousand steps.
CASES = [("unet", 2, 30), ("resnet50", 2, 30)]


def pytest_generate_tests(metafunc):
    if "gigabytes" in metafunc.fixturenames:
        every = [(name, gigabytes, metafunc.config.getoption("--steps")) for name in MODELS for gigabytes in (2, 6, 8, 24, 80)]
        metafunc.parametrize("name, gigabytes, steps", every if metafunc.config.getoption("--full") else CASES)


def write(folder, name, gigabytes):
    """The configuration, and the most samples."""
    make, inputs, targets, of_a_gigabyte = MODELS[name]
    given = inputs(2)
    example = torch.zeros(given.shape, dtype=given.dtype)
    exported_models.export(make().train(), folder / "model.pt2", (example,))
    samples = of_a_gigabyte * gigabytes
    write_zeros(folder / "data.safetensors", {"x": inputs(samples), "y": targets(samples)})
    config = folder / "run.toml"
    config.write_text(CONFIGURATION.format(folder=folder, samples=samples))
    return config, samples


def train_at(null_gpu, folder, config, size, steps, **card):
    """A run of its own in which every step is one micro-batch of that size, by a plan that is given: nothing is probed."""
    plan = {"global_batch_size": size, "predicted_step_seconds": 1.0,
            "ranks": [{"rank": 0, "device": "null GPU", "samples": size, "micro_batches": [[size, 1]], "predicted_seconds": 1.0, "idle_fraction": 0.0}], "last_batch": None}  # fmt: skip
    (folder / f"of-{size}.json").write_text(json.dumps(plan))
    words = settings(f"batch.global_batch_size={size}", f"run.max_steps={steps}", f'run.name="of-{size}"', 'batch.last_batch="drop"')
    return null_gpu.run(1, "train", config, "--plan", folder / f"of-{size}.json", *words, seconds=3000, watched=False, **card)


def has_probed(folder, size):
    """Under a plan that is given that is after a step ran out of memory alone."""
    return (folder / f"runs/of-{size}/profile.json").exists()


def test_the_largest_micro_batch_is_what_runs_of_their_own_find(null_gpu, tmp_path, name, gigabytes, steps):
    config, most = write(tmp_path, name, gigabytes)
    card = {"devices": [{"memory": gigabytes << 30}], "lag_milliseconds": 0}
    done = null_gpu.run(1, "probe", config, "--json", tmp_path / "profile.json", seconds=600, watched=False, **card)
    if done.code == 3:  # not one sample fits, as a run of its own finds too
        assert "not even 1 sample(s) fit" in done.words or "cannot even hold the model" in done.words, done.words
        assert train_at(null_gpu, tmp_path, config, 1, 2, **card).code == 3
        return
    assert done.code == 0, done.words
    found = read_json(tmp_path / "profile.json")["ranks"][0]
    largest, trials = found["largest_micro_batch"], found["trials"]
    print(f"{name}, {gigabytes} GB: {largest} samples, {found['max_micro_batch']} to be used, by {len(trials)} trials, {sum(trial['out_of_memory'] for trial in trials)} out of memory")
    assert largest < most, "memory was not the limit"
    assert len(trials) <= MOST_TRIALS and sum(trial["out_of_memory"] for trial in trials) <= 1, trials
    assert train_at(null_gpu, tmp_path, config, found["max_micro_batch"], steps, **card).code == 0
    assert [line["step"] for line in read_json_lines(tmp_path / f"runs/of-{found['max_micro_batch']}/metrics.jsonl")] == list(range(1, steps + 1))
    assert not has_probed(tmp_path, found["max_micro_batch"])
    beyond = int(BEYOND * largest) + 1
    assert train_at(null_gpu, tmp_path, config, beyond, 3, **card).code == 3 or has_probed(tmp_path, beyond)


# Beside a model whose gradient is 38 MiB, which buckets of the ordinary size divide.
MLP = ("[64]", 'kind = "mlp"\nhidden = [3072, 3072]')


@pytest.mark.parametrize("from_bytes, bucket", [(25 << 20, 25), (36 << 20, 100)])
def test_what_nccl_takes_at_a_large_sum_is_not_missing_in_a_step(null_gpu, tmp_path, from_bytes, bucket):
    """The second is more than the sums of the start have."""
    found = {}
    for memory in (0, 378 << 20):
        config = configuration(tmp_path, MLP, steps=5, bucket=bucket, overlap="true", more="[verify]\nat_start = false")
        changes = settings("data.size=64000", "batch.global_batch_size=32000", f'run.name="of-{memory}"', "probe.max_val=32000", "probe.cache=false", "run.cuda_graphs=false")
        done = null_gpu.run(2, "train", config, *changes, devices=[{"memory": 1600 << 20}] * 2, nccl={"memory": memory, "from_bytes": from_bytes}, seconds=200)
        assert done.code == 0 and not done.defects and "ran out of memory" not in done.words, done.words
        found[memory] = read_json(tmp_path / f"runs/of-{memory}/profile.json")["ranks"][0]["max_micro_batch"]
    assert 0 < found[378 << 20] < 0.9 * found[0], found


def test_where_nccl_finds_no_memory_the_run_ends(null_gpu, tmp_path):
    config = configuration(tmp_path, MLP, steps=5, bucket=100, more="[verify]\nat_start = false")
    done = null_gpu.run(2, "train", config, devices=[{"memory": 1600 << 20}] * 2, nccl={"memory": 1500 << 20, "from_bytes": 36 << 20})
    assert done.code == 4 and "ncclAllReduce failed" in done.words, done.words
