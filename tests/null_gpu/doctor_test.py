"""`onebatch doctor` where there are GPUs: what it says of them, and of NCCL that fails or never answers."""
import json

import pytest


@pytest.fixture
def doctor(null_gpu, tmp_path):
    """The findings by their check, on ranks that have a GPU each."""
    def look(ranks=2, code=None, options=(), **settings):
        document = tmp_path / "doctor.json"
        done = null_gpu.run(ranks, "doctor", "--json", document, *options, **settings)
        assert document.exists(), done.words
        assert code is None or done.code == code, done.words
        assert done.defects == []
        return {one["check"]: one for one in json.loads(document.read_text())["findings"]}

    return look


CARDS = [{"name": "H100"}, {"name": "H100"}]


def test_ranks_with_a_gpu_each_reduce_over_nccl_and_a_wrong_sum_is_found(doctor):
    """The stand-in sums small blocks alone: of 1 MiB each rank keeps its own, as over a link that carries nothing."""
    found = doctor(2, code=1, peer_access=True, devices=CARDS)
    assert found["driver"]["state"] == "ok" and "CUDA up to 13.0" in found["driver"]["found"]
    assert found["GPUs"]["found"] == "2 x H100" and found["peer access"]["state"] == "ok"
    assert found["all-reduce"]["state"] == "broken" and "by nccl, on H100: the sum is wrong" in found["all-reduce"]["found"], found["all-reduce"]


def test_gpus_that_do_not_reach_each_other_are_said(doctor):
    found = doctor(2, peer_access=False, devices=CARDS)
    assert found["peer access"]["state"] == "warning" and "0 of 1 pairs" in found["peer access"]["found"]


def test_more_ranks_than_gpus_are_said(doctor):
    found = doctor(2, devices=[{}])
    assert found["a GPU each"]["state"] == "warning" and "two ranks would share one" in found["a GPU each"]["found"]
    assert "by mpi, on cpu" in found["all-reduce"]["found"]


def test_a_driver_that_is_too_old_is_broken(doctor, null_gpu):
    before = null_gpu.cuda - 1
    found = doctor(1, code=1, driver=before * 1000 + 40)
    assert found["driver"]["state"] == "broken" and f"CUDA up to {before}.4; this program needs CUDA {null_gpu.cuda}" in found["driver"]["found"]


def test_a_driver_of_the_same_cuda_does(doctor, null_gpu):
    found = doctor(1, driver=null_gpu.cuda * 1000)
    assert found["driver"]["state"] == "ok" and f"CUDA up to {null_gpu.cuda}.0" in found["driver"]["found"]


def test_nccl_that_refuses_is_broken_and_says_why(doctor):
    found = doctor(2, code=1, nccl={"fail_at": 1})
    assert found["all-reduce"]["state"] == "broken" and "NCCL" in found["all-reduce"]["mend"], found["all-reduce"]


def test_a_gpu_that_one_rank_alone_cannot_use_is_named(doctor):
    found = doctor(2, code=1, devices=CARDS, of_rank={"1": {"devices": [{"name": "H100"}, {"name": "H100", "memory": 1 << 20}]}})
    assert found["all-reduce"]["state"] == "broken" and "rank 1" in found["all-reduce"]["found"], found["all-reduce"]


def test_nccl_that_never_answers_ends_at_the_deadline(doctor, null_gpu):
    done = null_gpu.run(2, "doctor", "--deadline", "4", nccl={"hang_at": 1}, seconds=60)
    assert done.code != 0 and done.seconds < 45
    assert "broken   all-reduce" in done.words or "comm.timeout_seconds" in done.words, done.words
