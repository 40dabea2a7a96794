"""The program's CUDA path on the stand-in: everything runs but arithmetic, so what is looked at is what LibTorch, the allocator, streams and NCCL are asked for."""
import json
import os
import re
import signal
import time

import pytest

from null_gpu.runs import MODELS, PRECISIONS, configuration, counts_of_a_step, expect_trained, mode
from program import read_json, read_json_lines

# Every value of every setting at least once on two ranks; --full: all of them together.
CASES = [
    (1, "mlp", {}),
    (1, "resnet", {"more": mode("exact")}),
    (1, "resnet", {"more": "[memory]\nrecompute = 2"}),
    (1, "resnet", {"more": mode("exact") + "\n" + PRECISIONS["float16"]}),
    (2, "mlp", {"overlap": "false", "bucket": 0.01}),
    (2, "mlp", {"overlap": "true", "bucket": 0.01, "more": PRECISIONS["short_parameters"]}),
    (2, "mlp", {"deterministic": '"bitwise"', "batch": "micro_batch_size = 4", "more": PRECISIONS["float64"]}),
    (2, "resnet", {"deterministic": "true", "more": mode("exact") + "\n" + PRECISIONS["bfloat16"]}),
    (2, "resnet", {"overlap": "false", "bucket": 0.01, "more": mode("sync") + "\n[optimizer]\nmax_grad_norm = 1.0"}),
    (2, "resnet", {"batch": "micro_batch_size = 3", "more": mode("exact")}),
    (4, "mlp", {"more": PRECISIONS["float16"]}),
]


def all_cases():
    for ranks in (1, 2, 4):
        for model in MODELS:
            for batch_norm in ("local", "sync", "exact") if model == "resnet" else ("local",):
                for name, precision in PRECISIONS.items():
                    for overlap in ("true", "false"):
                        for deterministic in ("false", "true"):
                            for bucket in (0.01, 25):
                                changes = {"overlap": overlap, "deterministic": deterministic, "bucket": bucket, "more": precision + ("" if batch_norm == "local" else "\n" + mode(batch_norm))}
                                yield pytest.param(ranks, model, changes, id=f"{ranks}-{model}-{batch_norm}-{name}-{overlap}-{deterministic}-{bucket}")


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        cases = list(all_cases()) if metafunc.config.getoption("--full") else [pytest.param(*case, id=f"{i}") for i, case in enumerate(CASES)]
        metafunc.parametrize("case", [pytest.param(one.values, id=one.id) for one in cases])


def test_trains_saves_and_resumes(null_gpu, tmp_path, case):
    ranks, model, changes = case
    expect_trained(null_gpu.run(ranks, "train", configuration(tmp_path, model, **changes)), 5, tmp_path)
    resumed = configuration(tmp_path, model, steps=8, **changes)
    expect_trained(null_gpu.run(ranks, "train", resumed, "--resume"), 8, tmp_path)


def test_unlike_devices_are_each_measured(null_gpu, tmp_path):
    devices = [{"memory": 8 << 30, "name": "large"}, {"memory": 520 << 20, "name": "small", "compute_capability": "7.5"}]
    config = configuration(tmp_path, more='[probe]\nmax_val = 100000\ninit_val = 64', batch="").read_text().replace("[probe]\nsteps_per_trial = 1\n", "", 1)
    path = tmp_path / "run.toml"
    path.write_text(config.replace("global_batch_size = 24", "global_batch_size = 2000").replace("size = 96", "size = 4000"))
    done = null_gpu.run(2, "probe", path, "--json", tmp_path / "profile.json", devices=devices)
    assert done.code == 0, done.words
    large, small = sorted(read_json(tmp_path / "profile.json")["ranks"], key=lambda rank: -rank["memory_limit_bytes"])
    assert (large["device"], small["device"]) == ("large", "small")
    assert small["max_micro_batch"] < large["max_micro_batch"]


@pytest.mark.parametrize("defect, seen", [("", None), ("host_read", "SIGSEGV"), ("stale_error", "device not ready"), ("missing_wait", "null GPU: pinned memory changed"),
                                          ("early_read", "defect: not a number"), ("there_and_back one", None),
                                          ("there_and_back two", "null GPU: a copy to the device reads pinned memory before"), ("two_streams event", None), ("two_streams host", None), ("two_halves", None), ("graphs_anew", None),
                                          ("two_streams nothing", "aten::add reads what aten::zeros writes on another stream"),
                                          ("two_streams freed", "aten::fill_ writes what aten::add reads on another stream"),
                                          ("other_device", "null GPU: an event of device 0 was recorded on a stream of device 1"),
                                          ("unset_device", "waits for an event of device 1: the calling thread has not set its device"), ("output_sums", "save_mean"),
                                          ("captured_wait", "previous error during capture"), ("captured_default", "previous error during capture"), ("beside_capture", "null GPU: a kernel was launched beside the capture")])
def test_a_seeded_defect_is_seen(null_gpu, defect, seen):
    done = null_gpu.run(1, *([defect] if defect else []), program=null_gpu.build / "null_gpu_defects", devices=[{}, {}], lag_milliseconds=500)
    if seen is None:
        assert done.code == 0 and not done.defects, done.words
    elif seen == "SIGSEGV":
        assert done.code == -signal.SIGSEGV, done.words
    else:
        assert seen in done.words


def test_a_wait_that_the_reducer_forgets_is_seen(null_gpu, tmp_path):
    config = configuration(tmp_path, "resnet", overlap="true", bucket=0.01)
    expect_trained(null_gpu.run(2, "train", config, lag_milliseconds=500), 5, tmp_path)
    done = null_gpu.run(2, "train", config, "--set", 'run.name="forgets"', lag_milliseconds=500, drop_waits=True)
    assert "NCCL reads what aten::add_ writes on another stream" in done.words, done.words


@pytest.mark.parametrize("model, more", [("mlp", ""), ("resnet", ""), ("resnet", mode("exact")), ("resnet", PRECISIONS["bfloat16"])])
def test_what_is_read_ahead_is_copied_beside_the_kernels_and_waited_for(null_gpu, tmp_path, model, more):
    """One rank sends nothing to others: the waits between streams are those for its samples."""
    config = configuration(tmp_path, model, batch="micro_batch_size = 6", more=more)
    expect_trained(null_gpu.run(1, "train", config, "--set", "data.workers=2", lag_milliseconds=200), 5, tmp_path)
    done = null_gpu.run(1, "train", config, "--set", "data.workers=2", "--set", 'run.name="forgets"', lag_milliseconds=200, drop_waits=True)
    assert "reads what aten::_to_copy writes on another stream" in done.words, done.words


@pytest.mark.parametrize("size", [6, 24])
def test_what_exact_batch_norm_keeps_in_the_host_goes_and_comes_beside_the_kernels(null_gpu, tmp_path, size):
    """Of four micro-batches, and of one that is alone."""
    config = configuration(tmp_path, "resnet", batch=f"micro_batch_size = {size}", more=mode("exact"))
    planned = null_gpu.run(1, "train", config)
    assert planned.code == 0, planned.words
    plan = read_json(tmp_path / "runs/run/plan.json")
    plan["ranks"][0]["kept_in_host"] = True
    (tmp_path / "in-host.json").write_text(json.dumps(plan))

    def train(name, path, **more):
        done = null_gpu.run(1, "train", config, "--plan", path, "--set", f'run.name="{name}"', "--set", "verify.at_start=false", lag_milliseconds=200, **more)
        assert done.code == 0, done.words
        return done

    on_device, in_host = train("on-device", tmp_path / "runs/run/plan.json"), train("in-host", tmp_path / "in-host.json")
    assert not in_host.defects, in_host.words
    layers, steps = 9, 5
    assert in_host.total("to_host") >= on_device.total("to_host") + layers * steps * 24 / size
    assert re.search("aten::copy_ (reads|writes) .* on another stream|(reads|writes) what aten::copy_", train("forgets", tmp_path / "in-host.json", drop_waits=True).words)


def test_deterministic_runs_fill_nothing(null_gpu, tmp_path):
    """PyTorch fills what it makes in such a run, which is a kernel for every tensor."""
    (plain,), _ = counts_of_a_step(null_gpu, tmp_path, "mlp", name="plain")
    (same,), _ = counts_of_a_step(null_gpu, tmp_path, "mlp", name="same", deterministic="true")
    assert same["kernels"] + same["replayed_kernels"] == plain["kernels"] + plain["replayed_kernels"]


def test_where_memory_ends_the_run_goes_on_with_less(null_gpu, tmp_path):
    first = null_gpu.run(1, "train", configuration(tmp_path, "mlp"))
    asked = first.counts[0]["allocations"]
    codes = set()
    for number in range(2, asked + 1, max(1, asked // 6)):
        done = null_gpu.run(1, "train", configuration(tmp_path, "mlp"), "--set", f'run.name="fails-{number}"', fail_allocation=number)
        codes.add(done.code)
        assert done.code in (0, 3), f"allocation {number}\n{done.words}"
        assert done.code == 0 or "memory" in done.words
    assert 0 in codes


def rank_process(name, rank, seconds=30):
    """The process of a rank, by its environment; none where it does not come."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for folder in os.listdir("/proc"):
            try:
                environment = open(f"/proc/{folder}/environ", "rb").read() if folder.isdigit() else b""
            except OSError:
                continue
            if name.encode() in environment and f"OMPI_COMM_WORLD_RANK={rank}\0".encode() in environment:
                return int(folder)
        time.sleep(0.05)
    return None


def when_training(folder, rank, number):
    """Sends the signal to a rank once steps are done."""

    def during(_):
        metrics, end = folder / "runs/run/metrics.jsonl", time.monotonic() + 60
        while time.monotonic() < end and not (metrics.exists() and len(metrics.read_text().splitlines()) > 3):
            time.sleep(0.05)
        process = rank_process(str(folder), rank)
        if process:
            os.kill(process, number)

    return during


@pytest.mark.parametrize("model, more, overlap, bucket, ranks", [("mlp", "", "true", 0.01, 2), ("resnet", "", "false", 25, 2), ("resnet", mode("exact"), "true", 0.01, 2), ("resnet", mode("exact"), "false", 25, 4)])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_lost_or_stopped_is_named(null_gpu, tmp_path, number, model, more, overlap, bucket, ranks):
    config = configuration(tmp_path, model, steps=100000, timeout=5, overlap=overlap, bucket=bucket, batch="micro_batch_size = 3", more=more)
    begin = time.monotonic()
    struck = []

    def during(process):
        when_training(tmp_path, 1, number)(process)
        struck.append(time.monotonic() - begin)

    done = null_gpu.run(ranks, "train", config, seconds=150, during=during)
    assert done.code not in (0, None), done.words
    assert re.search(r"rank 1\b", done.words), done.words
    assert done.seconds - struck[0] < 5 + 5 + 5, done.words  # the deadline, what it may take longer, the launcher's own end


@pytest.mark.parametrize("settings", [{"hang_at": 30}, {"fail_at": 30}])
def test_a_collective_that_hangs_or_fails_ends_the_run(null_gpu, tmp_path, settings):
    config = configuration(tmp_path, "mlp", steps=100000, timeout=5, overlap="true", bucket=0.01)
    done = null_gpu.run(2, "train", config, seconds=90, of_rank={"1": {"nccl": settings}})
    assert done.code not in (0, None), done.words
    assert "ncclAllReduce" in done.words, done.words


def test_what_a_rank_has_failed_of_first_is_said(null_gpu, tmp_path, monkeypatch):
    """Its model fails in the tenth step, and then that step's reduction."""
    config = configuration(tmp_path, "mlp", steps=10, overlap="false", batch="micro_batch_size = 12\ngradient_accumulation_steps = 1", more="[verify]\nat_start = false").read_text().replace("[probe]", "[probe]\ncache = false")
    (tmp_path / "run.toml").write_text(config)
    done = null_gpu.run(2, "train", tmp_path / "run.toml", program=null_gpu.build / "faulty_onebatch")
    expect_trained(done, 10, tmp_path)
    last = next(process["nccl"] for process in done.counts if process["rank"] == 1)
    monkeypatch.setenv("ONEBATCH_FAULT", f"1 model 9 throw {tmp_path / 'moment'}")
    done = null_gpu.run(2, "train", tmp_path / "run.toml", "--set", 'run.name="fails"', program=null_gpu.build / "faulty_onebatch", of_rank={"1": {"nccl": {"fail_at": last}}})
    assert done.code not in (0, None) and "this was planned by a test (model)" in done.words, done.words


# The micro-batch of the step, of six, or the round.
@pytest.mark.parametrize("more, overlap, bucket, step, number", [
    (mode("exact"), "true", 0.01, 0, 0), (mode("exact"), "false", 25, 9, 1), (mode("sync"), "true", 0.01, 9, 0), ("", "true", 0.01, 9, 2), ("", "false", 25, 9, 5), ("", "false", 0.01, 0, 0),
    ("[memory]\nrecompute = 2", "true", 0.01, 0, 5), ("[memory]\nrecompute = 2", "true", 25, 9, 0)])  # fmt: skip
def test_a_rank_that_fails_in_a_micro_batch_ends_the_run(null_gpu, tmp_path, monkeypatch, more, overlap, bucket, step, number):
    config = configuration(tmp_path, "resnet", steps=12, bucket=bucket, overlap=overlap, timeout=20, batch='micro_batch_size = 2\nreplan = "never"', more=more + "\n[verify]\nat_start = false")
    monkeypatch.setenv("ONEBATCH_FAULT", f"1 model {step} throw {tmp_path / 'moment'}")
    monkeypatch.setenv("ONEBATCH_FAULT_SKIPS", str(number))
    done = null_gpu.run(2, "train", config, program=null_gpu.build / "faulty_onebatch", seconds=100)
    ended = time.time()
    assert done.code not in (0, None) and "this was planned by a test (model)" in done.words and "rank 1" in done.words, done.words
    assert not done.defects, done.words
    assert ended - float((tmp_path / "moment").read_text()) < 20 + 5, done.words


def test_gpus_that_do_not_reach_each_other_are_told_soon(null_gpu, tmp_path):
    done = null_gpu.run(2, "train", configuration(tmp_path, "mlp", timeout=600), seconds=110, of_rank={"1": {"nccl": {"hang_at": 1}}})
    assert done.code not in (0, None) and "the GPUs do not reach each other" in done.words and "NCCL_SOCKET_IFNAME" in done.words, done.words


def test_nccls_own_memory_is_counted(null_gpu, tmp_path):
    config = configuration(tmp_path, "mlp", steps=3, bucket=0.01)
    done = null_gpu.run(2, "train", config, nccl={"memory": 378 << 20})
    expect_trained(done, 3, tmp_path)
    assert max(process["peak_bytes"] for process in done.counts) > 378 << 20


# By the CUDA of the build, what is said of a driver or card; where it says nothing the run trains.
DRIVERS_AND_CARDS = [({"driver": 11080}, dict.fromkeys((12, 13), ["CUDA up to 11.8", "update the driver"])),
                     ({"driver": 12040}, {13: ["CUDA up to 12.4", "update the driver", "--libtorch 2.7.1"]}),
                     ({"devices": [{"name": "Tesla P100", "compute_capability": "6.0"}]}, {13: ["Tesla P100", "6.0", "`./dev build --cuda --libtorch 2.7.1`"]}),
                     ({"devices": [{"name": "B200", "compute_capability": "10.0"}]}, {12: ["B200", "10.0", "`./dev build --cuda`"]}),
                     ({"devices": [{"name": "Tesla K80", "compute_capability": "3.7"}]}, dict.fromkeys((12, 13), ["Tesla K80", "3.7", "no LibTorch that ./dev builds with"]))]


@pytest.mark.parametrize("device", ["cuda", "auto"])
@pytest.mark.parametrize("settings, words", DRIVERS_AND_CARDS)
def test_a_driver_or_card_that_the_build_does_not_serve_is_named(null_gpu, tmp_path, device, settings, words):
    done = null_gpu.run(1, "train", configuration(tmp_path), "--set", f'run.device="{device}"', **settings)
    if null_gpu.cuda not in words:
        return expect_trained(done, 5, tmp_path)
    assert done.code == 2, done.words
    assert all(word in done.words for word in words[null_gpu.cuda]), done.words


@pytest.mark.parametrize("capability, more, said", [("9.0", "", True), ("9.0", "[precision]\nallow_tf32 = true", False), ("9.0", PRECISIONS["bfloat16"], False), ("7.5", "", False)])
def test_what_float32_costs_where_there_is_tf32_is_said_once(null_gpu, tmp_path, capability, more, said):
    done = null_gpu.run(1, "train", configuration(tmp_path, "mlp", more=more), devices=[{"compute_capability": capability}])
    expect_trained(done, 5, tmp_path)
    assert done.words.count("TF32, which is off") == said, done.words


@pytest.mark.parametrize("of_rank, code", [({"0": {"devices": [{"slot": 0}]}, "1": {"devices": [{"slot": 3}]}}, 0),
                                           ({"0": {"devices": [{"slot": 1}, {"slot": 2}]}, "1": {"devices": [{"slot": 1}]}}, 0),
                                           ({"0": {"devices": [{"slot": 3}]}, "1": {"devices": [{"slot": 3}]}}, 2)])
def test_ranks_that_see_devices_of_their_own_are_not_taken_to_share(null_gpu, tmp_path, of_rank, code):
    done = null_gpu.run(2, "train", configuration(tmp_path), of_rank=of_rank)
    assert done.code == code, done.words
    assert ("two ranks would share one" in done.words) == (code == 2), done.words


def test_parts_of_one_gpu_sum_through_host_memory(null_gpu, tmp_path):
    """NCCL tells GPUs apart by their places on the bus."""
    parts = {rank: {"devices": [{"slot": 3 + int(rank), "bus": 3}]} for rank in "01"}
    done = null_gpu.run(2, "train", configuration(tmp_path, more=""), of_rank=parts)
    assert done.code == 0 and done.total("nccl") == 0 and "parts of one GPU (MIG)" in done.words, done.words


def test_a_check_on_one_card_may_tell_nccl_that_the_ranks_hosts_are_others(null_gpu, tmp_path, monkeypatch):
    config = configuration(tmp_path, more="")
    settings = ("--set", 'comm.backend="nccl"', "--set", "comm.allow_shared_device=true")
    one_card = {rank: {"devices": [{"slot": 3}]} for rank in "01"}
    through_host = null_gpu.run(2, "train", config, *settings, of_rank=one_card)
    assert through_host.code == 0 and through_host.total("nccl") == 0 and "pinned host memory" in through_host.words, through_host.words
    monkeypatch.setenv("NCCL_HOSTID", "this-rank's")
    over_nccl = null_gpu.run(2, "train", config, *settings, "--set", 'run.name="over-nccl"', of_rank=one_card)
    assert over_nccl.code == 0 and over_nccl.total("nccl") > 0 and "pinned host memory" not in over_nccl.words, over_nccl.words


# Where the norm clips, loss and norm are read at once, together; else when the device has the next step.
@pytest.mark.parametrize("batch", [12, 3])
@pytest.mark.parametrize("model, more, stops", [("mlp", "", 0), ("resnet", "", 0), ("resnet", mode("exact"), 0), ("mlp", '[optimizer]\nkind = "adamw"', 0), ("mlp", '[optimizer]\nmax_grad_value = 1.0', 0),
                                                ("mlp", "[optimizer]\nmax_grad_norm = 1.0", 1), ("resnet", PRECISIONS["float16"], 1), ("mlp", "[optimizer]\nema_decay = 0.9", 1)])
def test_host_stops_of_a_step(null_gpu, tmp_path, model, more, stops, batch):
    (counts,), words = counts_of_a_step(null_gpu, tmp_path, model, more=more, batch=f'micro_batch_size = {batch}\nreplan = "never"')
    assert counts["host_stops"] == stops, words
    assert counts["waits_behind"] == (1 if stops == 0 else 0), words


@pytest.mark.parametrize("name", ["to_host", "to_device"])
def test_shared_statistics_cross_once_a_layer_and_exchange(null_gpu, tmp_path, name):
    layers, exchanges, inputs = 9, 2, 2 * 24 / 6
    counts, _ = counts_of_a_step(null_gpu, tmp_path, "resnet", 2, more=mode("exact"))
    assert max(rank[name] for rank in counts) <= layers * exchanges + (inputs if name == "to_device" else 0) + 3
