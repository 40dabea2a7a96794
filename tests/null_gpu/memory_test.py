"""Memory on the stand-in: what LibTorch's allocator is told, what the probe reads of it, and whose memory it was that ran out."""
import pytest
from null_gpu.runs import configuration, counts_of_a_step, expect_trained, mode

from program import read_json, settings

# Few and large images: without cuDNN LibTorch launches a convolution's kernels for each sample.
WIDE = '[run]\nmax_steps = 2\ndevice = "cuda"\nname = "run"\noutput_dir = "{folder}/runs"\n[batch]\nglobal_batch_size = 250\n[data]\nkind = "synthetic"\nshape = [3, 128, 128]\nsize = 500\n' \
       '[model]\nkind = "resnet"\nstem = "cifar"\ndepth = 20\n[verify]\nat_start = false\n[probe]\nsteps_per_trial = 1\ncache = false\n{more}\n'


def wide(folder, more=""):
    path = folder / "wide.toml"
    path.write_text(WIDE.format(folder=folder, more=more))
    return path


def total(null_gpu, folder, name, *settings, **simulated):
    """What a run that trains has counted."""
    more = [word for setting in settings for word in ("--set", setting)]
    done = null_gpu.run(1, "train", wide(folder), *more, "--set", f'run.name="of-{len(list(folder.iterdir()))}"', **simulated)
    assert done.code == 0 and not done.defects, done.words
    return done.total(name)


def test_expandable_segments_are_taken_piece_by_piece(null_gpu, tmp_path):
    assert total(null_gpu, tmp_path, "virtual_pieces") == 0
    assert total(null_gpu, tmp_path, "virtual_pieces", "memory.expandable_segments=true") > 0


def test_expandable_segments_on_two_ranks(null_gpu, tmp_path):
    expect_trained(null_gpu.run(2, "train", configuration(tmp_path, more=mode("exact") + "\n[memory]\nexpandable_segments = true")), 5, tmp_path)


def test_unused_blocks_are_given_back_from_a_share_of_the_limit(null_gpu, tmp_path):
    small = {"devices": [{"memory": 3 << 30}]}
    assert total(null_gpu, tmp_path, "frees", "memory.garbage_collection_threshold=0.05", **small) > total(null_gpu, tmp_path, "frees", **small)


def test_large_blocks_are_not_split(null_gpu, tmp_path):
    small = {"devices": [{"memory": 3 << 30}]}
    assert total(null_gpu, tmp_path, "allocations", "memory.max_split_size_mb=21", **small) != total(null_gpu, tmp_path, "allocations", **small)


def test_the_environments_options_stay_and_what_goes_before_them_is_said(null_gpu, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:100")
    done = null_gpu.run(1, "train", configuration(tmp_path, "mlp"), "--set", "memory.max_split_size_mb=64")
    expect_trained(done, 5, tmp_path)
    assert done.total("virtual_pieces") > 0
    assert "memory.max_split_size_mb of the configuration goes before max_split_size_mb:100 of PYTORCH_CUDA_ALLOC_CONF" in done.words, done.words


def peaks(null_gpu, folder, how, **simulated):
    """Size: peak, of each trial that fitted."""
    done = null_gpu.run(1, "probe", wide(folder), "--set", f'probe.mode="{how}"', "--set", "probe.max_val=32", "--set", "probe.init_val=1", "--json", folder / f"{how}.json", **simulated)
    assert done.code == 0, done.words
    return {trial["size"]: trial["peak_bytes"] for trial in read_json(folder / f"{how}.json")["ranks"][0]["trials"] if trial["fits"]}


def test_a_trials_peak_is_its_own_whatever_was_tried_before(null_gpu, tmp_path):
    doubled = peaks(null_gpu, tmp_path, "power")
    assert len(doubled) > 5
    for size in (4, 32):
        alone = null_gpu.run(1, "probe", wide(tmp_path), "--set", f"batch.micro_batch_size={size}", "--json", tmp_path / "alone.json")
        assert alone.code == 0, alone.words
        trials = {trial["size"]: trial["peak_bytes"] for trial in read_json(tmp_path / "alone.json")["ranks"][0]["trials"]}
        assert trials[size] == doubled[size], (size, trials, doubled)


def test_a_rank_without_samples_is_waited_for_by_no_device(null_gpu, tmp_path):
    """Near its limit the other rank's allocator frees memory, which waits for all that is under way: no bucket may be, that this rank sends after the next exchange."""
    sizes = settings("data.shape=[3,256,256]", "data.size=6", "batch.global_batch_size=1", "memory.garbage_collection_threshold=0.6")
    for more in (140, 143):
        config = configuration(tmp_path, "resnet", batch="micro_batch_size = 1", steps=3, timeout=15, bucket=0.01, overlap="true", more=mode("exact"))
        done = null_gpu.run(2, "train", config, *sizes, "--set", f'run.name="of-{more}"', devices=[{"memory": (400 + more) << 20}] * 2)
        assert done.code == 0, done.words


def test_pinned_memory_that_ends_is_the_hosts(null_gpu, tmp_path):
    done = null_gpu.run(1, "train", configuration(tmp_path, "resnet"), host_memory=20000)
    assert done.code == 3 and "the host, not its GPU, has no memory left" in done.words, done.words


def test_what_a_host_does_not_hold_stays_on_its_device(null_gpu, tmp_path):
    """Of a share as large as the host's memory."""
    available = next(int(line.split()[1]) << 10 for line in open("/proc/meminfo") if line.startswith("MemAvailable"))
    config, samples = wide(tmp_path, mode("exact")), available // (20 << 20)
    card = {"devices": [{"memory": 3 << 30}]}
    for share, code in ((60, 0), (samples, 3)):
        done = null_gpu.run(1, "train", config, "--set", f"batch.global_batch_size={share}", "--set", f"data.size={share}", "--set", f'run.name="of-{share}"', "--set", "run.max_steps=1", **card)
        assert done.code == code, done.words
        assert ("what exact BatchNorm keeps of rank 0's share stays on its device: in host memory it may take" in done.words) == (code == 3), done.words


def test_adams_counts_are_one_kernel(null_gpu, tmp_path):
    of = {}
    for kind in ("sgd", "adamw"):
        (counts,), _ = counts_of_a_step(null_gpu, tmp_path, "resnet", name=kind, more=f'[optimizer]\nkind = "{kind}"')
        of[kind] = counts["kernels"]
    assert of["adamw"] - of["sgd"] < 10, of


@pytest.mark.parametrize("device, current", [(0, 1), (1, 0)])
def test_a_batch_size_is_found_on_the_callers_device_beside_what_it_holds(null_gpu, device, current):
    done = null_gpu.run(1, str(device), str(current), program=null_gpu.build / "null_gpu_borrowed_device", devices=[{"memory": 24 << 30, "reserved": 0}] * 2)
    assert done.code == 0, done.words
    words = done.words.split("found: ")[1].split()
    limit, after, fraction, held = int(words[0]), int(words[1]), float(words[2]), words[3]
    assert limit > 20 << 30 and after == current and fraction == 0.75 and held == f"{device}", done.words
