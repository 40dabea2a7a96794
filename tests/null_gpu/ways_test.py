"""Models of many kinds under every way to train, on the stand-in: 20 steps, saved half way, and gone on with.

Each model once, with settings drawn for it that differ from the others'; --full: as many as --count says, drawn from all that the documents allow together.
"""
import random

import pytest

from null_gpu.families import FAMILIES, of_family
from null_gpu.runs import counts_between
from program import read_json_lines

STEPS, SAMPLES = 20, 72
CONFIGURATION = """
[run]
max_steps = {steps}
output_dir = "{folder}/runs"
name = "run"
device = "cuda"
deterministic = {deterministic}
[batch]
global_batch_size = 24
micro_batch_size = {micro}
[batch_norm]
mode = "{norm}"
[precision]
compute = "{compute}"
[memory]
recompute = {recompute}
offload = "{offload}"
[probe]
steps_per_trial = 1
[comm]
timeout_seconds = 60
bucket_cap_mb = {bucket}
overlap = {overlap}
[checkpoint]
every_steps = 7
"""
SETTINGS = {"norm": ("local", "sync", "exact"), "compute": ("float32", "bfloat16", "float16"), "recompute": ('"off"', "2"), "offload": ("auto", "never"), "deterministic": ("false", "true", '"bitwise"'),
            "overlap": ("true", "false"), "ranks": (1, 2, 4), "bucket": (0.01, 25), "micro": (2, 6)}  # fmt: skip
NORMED = ("resnet18", "resnet50", "mobilenet_v2")


def is_allowed(name, case):
    if name not in NORMED and case["norm"] != "local":
        return False  # the same as local
    if name in NORMED and case["deterministic"] == '"bitwise"' and case["norm"] != "exact":
        return False  # running statistics depend on who computes what
    return not (case["norm"] != "local" and case["recompute"] != '"off"')  # exact and synchronised BatchNorm compute again as they need


def drawn(random_numbers, name, settings):
    while True:
        case = {key: random_numbers.choice(values) for key, values in settings.items()}
        if is_allowed(name, case):
            return {"name": name, **case}


def pytest_generate_tests(metafunc):
    if "case" not in metafunc.fixturenames:
        return
    full, names = metafunc.config.getoption("--full"), list(FAMILIES)
    settings = SETTINGS if full else {**SETTINGS, "ranks": (1, 2)}
    random_numbers = random.Random(metafunc.config.getoption("--seed"))
    cases = [drawn(random_numbers, names[i % len(names)], settings) for i in range(metafunc.config.getoption("--count") if full else len(names))]
    metafunc.parametrize("case", [pytest.param(case, id="-".join(str(value).strip('"') for value in case.values())) for case in cases])


def test_trains_saves_and_goes_on(null_gpu, tmp_path, case):
    parts = of_family(tmp_path, case["name"], SAMPLES)
    config = tmp_path / "run.toml"
    for steps in (STEPS // 2, STEPS):
        config.write_text(CONFIGURATION.format(folder=tmp_path, steps=steps, **case) + parts)
        done = null_gpu.run(case["ranks"], "train", config, "--resume", seconds=300)
        assert done.code == 0 and not done.defects, done.words
        assert [line["step"] for line in read_json_lines(tmp_path / "runs/run/metrics.jsonl")] == list(range(1, steps + 1))
        assert done.total("kernels") > 0 and done.total("overwritten_sources") == 0
    assert "step 10" in done.words, done.words  # where it goes on


def counts_of_a_step(null_gpu, folder, name, ranks, micro, norm):
    """Of float32, nothing recomputed."""
    case = {"norm": norm, "compute": "float32", "recompute": '"off"', "offload": "auto", "deterministic": "false", "overlap": '"auto"', "bucket": 25, "micro": micro}
    parts = of_family(folder, name, SAMPLES)

    def config_of(steps):
        config = folder / "run.toml"
        config.write_text(CONFIGURATION.format(folder=folder, steps=steps, **case) + parts + '[verify]\nat_start = false\n')
        return config

    return counts_between(null_gpu, folder, config_of, ranks, ("--set", "checkpoint.every_steps=0", "--set", 'batch.replan="never"'))


@pytest.mark.parametrize("micro", [12, 3])
@pytest.mark.parametrize("name, norm", [("resnet50", "local"), ("resnet50", "exact"), ("gpt2", "local")])
def test_the_host_stops_in_no_step(null_gpu, tmp_path, name, norm, micro):
    (counts,), words = counts_of_a_step(null_gpu, tmp_path, name, 1, micro, norm)
    assert counts["host_stops"] == 0 and counts["waits_behind"] == 1, words


def test_shared_statistics_cross_once_a_layer_and_exchange(null_gpu, tmp_path):
    """Eight micro-batches of two ranks."""
    layers, exchanges, inputs_and_labels, figures = 53, 2, 2 * 24 / 3, 3
    counts, _ = counts_of_a_step(null_gpu, tmp_path, "resnet50", 2, 3, "exact")
    assert max(rank["to_host"] for rank in counts) <= layers * exchanges + figures
    assert max(rank["to_device"] for rank in counts) <= layers * exchanges + inputs_and_labels + figures
