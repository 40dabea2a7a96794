"""CUDA graphs of micro-steps on the stand-in: which are recorded, that a replay has the kernels that there are without, and what happens where one cannot be."""
import json
import subprocess
import sys

import pytest

from null_gpu.runs import MODELS, PRECISIONS, configuration, counts_of_a_step, expect_trained, mode
from program import read_json, read_safetensors

# Made where they are used.
SCRIPTED = {
    "cnn": "def forward(self, x):\n        return self.last(self.first(x).relu().flatten(1))",
    # How many values are above zero is the host's to know.
    "selecting": "def forward(self, x):\n        hidden = self.first(x).relu().flatten(1)\n        return self.last(hidden) + torch.masked_select(hidden, hidden > 0).sum() * 0.0",
}
MODEL = """import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.last = torch.nn.Linear(4 * 16 * 16, 10)
    {forward}
torch.jit.script(Model()).save({path!r})
"""


def of_model(folder, model):
    """What configuration() takes for the model."""
    if model in MODELS:
        return model
    path, source = folder / f"{model}.pt", folder / f"{model}.py"
    if not path.exists():
        source.write_text(MODEL.format(forward=SCRIPTED[model], path=str(path)))
        subprocess.run([sys.executable, str(source)], check=True)
    return "[3, 16, 16]", f'kind = "torchscript"\npath = "{path}"'


def settings(*given):
    return [word for setting in given for word in ("--set", setting)]


def counts_with(null_gpu, folder, model, graphs, batch, ranks=1, overlap='"auto"', change="run.seed=0"):
    """Of a step, of all ranks together."""
    shape = of_model(folder, model)
    changes = settings(*([change] if isinstance(change, str) else change), f"run.cuda_graphs={graphs}", f"batch.global_batch_size={batch}")
    counts, words = counts_of_a_step(null_gpu, folder, shape, ranks, changes=changes, name=f"{model}-{graphs}-{batch}-{ranks}", overlap=overlap)
    return {key: sum(rank[key] for rank in counts) for key in counts[0]}, words


def launches(counts):
    return counts["kernels"] + counts["blas"] + counts["on_device"] + counts["memsets"] + counts["graph_launches"]


def of_a_micro_step(null_gpu, folder, model, graphs):
    """What a step of 8 micro-batches has more than one of 4, for each of them."""
    few, _ = counts_with(null_gpu, folder, model, graphs, 24)
    many, words = counts_with(null_gpu, folder, model, graphs, 48)
    return {key: (many[key] - few[key]) / 4 for key in few}, words


@pytest.mark.parametrize("model", ["mlp", "cnn", "resnet"])
def test_a_micro_step_is_one_graph_of_the_kernels_that_it_has_without(null_gpu, tmp_path, model, request):
    if model == "mlp":
        request.getfixturevalue("nvrtc")
    ordinary, words = of_a_micro_step(null_gpu, tmp_path, model, "false")
    assert ordinary["graph_launches"] == 0 and "CUDA graphs" not in words, words
    replayed, words = of_a_micro_step(null_gpu, tmp_path, model, "true")
    assert replayed["graph_launches"] == 1, words
    assert launches(replayed) <= 3, replayed
    assert replayed["replayed_kernels"] == launches(ordinary), (ordinary, replayed)
    assert replayed["host_stops"] == ordinary["host_stops"] == 0
    assert words.count("run as CUDA graphs") == 1, words


@pytest.mark.usefixtures("nvrtc")
def test_masks_are_drawn_on_the_device(null_gpu, tmp_path):
    """The samples go there, and no masks; with graphs straight to where they read them."""
    counts = {}
    for dropout in ("0.0", "0.1"):
        folder = tmp_path / dropout
        folder.mkdir()
        for graphs in ("false", "true"):
            few, many = (counts_with(null_gpu, folder, "mlp", graphs, batch, change=f"model.dropout={dropout}")[0] for batch in (24, 48))
            counts[dropout, graphs] = {key: (many[key] - few[key]) / 4 for key in few}
    for graphs in ("false", "true"):
        without, drawn = counts["0.0", graphs], counts["0.1", graphs]
        assert drawn["to_device"] == without["to_device"] + 1, (without, drawn)
        assert drawn["host_stops"] == without["host_stops"] == 0
    assert launches(counts["0.1", "true"]) == launches(counts["0.0", "true"])


@pytest.mark.parametrize("kernels, why", [("refused", "does not take what was compiled"), ("wrong", "not what the host draws")])
@pytest.mark.usefixtures("nvrtc")
def test_where_the_device_cannot_draw_the_host_does_and_that_is_a_fallback(null_gpu, tmp_path, kernels, why):
    config = configuration(tmp_path, "mlp", batch="micro_batch_size = 6")
    done = null_gpu.run(1, "train", config, own_kernels=kernels)
    expect_trained(done, 5, tmp_path)
    assert done.words.count(why) == 1 and "dropout's masks drawn on the GPU" in done.words, done.words
    assert "copies from host memory" in done.words and done.total("graph_launches") == 0, done.words
    assert null_gpu.run(1, "train", config, "--set", 'run.name="strict"', "--strict", own_kernels=kernels).code == 2


@pytest.mark.usefixtures("nvrtc")
def test_class_weights_stay_on_the_device(null_gpu, tmp_path):
    config = configuration(tmp_path, "mlp", batch="micro_batch_size = 6", more="[loss]\nclass_weights = [1, 2, 1, 1, 1, 1, 1, 1, 1, 0.5]")
    done = null_gpu.run(1, "train", config, *settings("run.cuda_graphs=true"), "--strict")
    expect_trained(done, 5, tmp_path)
    assert done.total("graph_launches") > 0


@pytest.mark.usefixtures("nvrtc")
def test_where_buckets_are_sent_early_the_last_micro_step_is_none(null_gpu, tmp_path):
    for overlap, of_each_rank in (("true", 1), ("false", 0)):
        folder = tmp_path / overlap
        folder.mkdir()
        counts, words = counts_with(null_gpu, folder, "mlp", "true", 48, 2, overlap)
        plan = read_json(folder / "runs/mlp-true-48-2-plan/plan.json")
        micro_steps = sum(count for rank in plan["ranks"] for _, count in rank["micro_batches"])
        assert micro_steps >= 8 and counts["graph_launches"] == micro_steps - 2 * of_each_rank, words
        assert words.count("run as CUDA graphs") == 1, words


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_graphs_are_for_every_precision(null_gpu, tmp_path, precision, ranks):
    config = configuration(tmp_path, "resnet", batch="micro_batch_size = 3", overlap="true", bucket=0.01, deterministic="true", more=PRECISIONS[precision])
    done = null_gpu.run(ranks, "train", config, "--set", "run.cuda_graphs=true", "--strict")
    expect_trained(done, 5, tmp_path)
    assert done.total("graph_launches") > 0


def test_averaged_weights_leave_the_graphs_as_they_are(null_gpu, tmp_path):
    """It is taken behind the step, on the device. The host waits once a step with an average, and never without, as docs/gpu.md has it."""
    plain, averaged = (counts_with(null_gpu, tmp_path, "resnet", "true", 24, change=f"optimizer.ema_decay={decay}")[0] for decay in ("0.0", "0.9"))
    same = ("graph_launches", "replayed_kernels", "to_host")
    assert {key: averaged[key] for key in same} == {key: plain[key] for key in same}
    assert (plain["host_stops"], averaged["host_stops"]) == (0, 1)


@pytest.mark.parametrize("ranks", [1, 2])
def test_averaged_weights_are_evaluated_saved_and_resumed_beside_graphs(null_gpu, tmp_path, ranks):
    for steps in (4, 8):
        config = configuration(tmp_path, "resnet", steps=steps, batch="micro_batch_size = 6")
        averaging = settings("run.cuda_graphs=true", "optimizer.ema_decay=0.9", "data.validation.fraction=0.25", "checkpoint.keep_best.metric=loss")
        done = null_gpu.run(ranks, "train", config, *averaging, "--resume", "--strict")
        expect_trained(done, steps, tmp_path)
        assert done.total("graph_launches") > 0
    saved = read_safetensors(tmp_path / "runs/run/checkpoints/latest/optimizer.safetensors")
    assert any(name.startswith("ema.") for name in saved)


def test_a_run_that_goes_on_records_anew(null_gpu, tmp_path):
    for steps in (5, 8):
        config = configuration(tmp_path, "resnet", steps=steps, batch="micro_batch_size = 6")
        done = null_gpu.run(1, "train", config, "--set", "run.cuda_graphs=true", "--resume", "--strict")
        expect_trained(done, steps, tmp_path)
        assert done.total("graph_launches") > 0


# A selection's length is read on the host.
def test_a_model_that_cannot_be_recorded_runs_without_and_that_is_said_once(null_gpu, tmp_path):
    config = configuration(tmp_path, of_model(tmp_path, "selecting"), steps=6, batch="micro_batch_size = 6")
    for graphs, strict, code in (('"auto"', [], 0), ("true", [], 0), ("true", ["--strict"], 2), ("false", ["--strict"], 0)):
        done = null_gpu.run(1, "train", config, *settings(f"run.cuda_graphs={graphs}", f'run.name="of-{graphs[0]}{len(strict)}"'), *strict)
        assert done.code == code and not done.defects, done.words
        assert done.words.count("cannot be recorded") == (0 if graphs == "false" else 1), done.words
        assert ("run.cuda_graphs = true" in done.words) == (graphs == "true"), done.words
        assert done.total("graph_launches") == 0


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_round_of_exact_batch_norm_is_a_graph_from_each_exchange_to_the_next(null_gpu, tmp_path, ranks):
    """ResNet-8 has nine BatchNorms, each of which meets the other ranks twice a step."""
    exact = ('batch_norm.mode="exact"', f"batch.gradient_accumulation_steps={4 // ranks}")
    ordinary, words = counts_with(null_gpu, tmp_path, "resnet", "false", 24, ranks, change=exact)
    assert ordinary["graph_launches"] == 0 and "CUDA graphs" not in words, words
    replayed, words = counts_with(null_gpu, tmp_path, "resnet", "true", 24, ranks, change=exact)
    assert replayed["graph_launches"] == ranks * (1 + (0 if ranks == 1 else 2 * 9)), words
    inputs_and_labels, loss_factors = 2 * 4, ranks  # copied to where they are read; made anew in each step
    assert launches(replayed) - replayed["graph_launches"] + replayed["replayed_kernels"] == launches(ordinary) + inputs_and_labels - loss_factors, (ordinary, replayed)
    same = ("to_host", "to_device", "host_stops")
    assert {key: replayed[key] for key in same} == {key: ordinary[key] for key in same}
    assert words.count("run as CUDA graphs") == 1, words


@pytest.mark.parametrize("ranks, more", [(1, mode("exact")), (2, mode("exact")), (2, mode("exact") + "\n" + PRECISIONS["bfloat16"]), (1, mode("exact") + "\n" + PRECISIONS["float16"]),
                                         (2, mode("sync") + "\n" + PRECISIONS["float16"]), (1, "[memory]\nrecompute = 2"), (2, "[memory]\nrecompute = 2\n" + PRECISIONS["bfloat16"])])
def test_graphs_are_of_models_that_are_taken_apart(null_gpu, tmp_path, ranks, more):
    for steps in (5, 9):
        config = configuration(tmp_path, "resnet", steps=steps, batch="micro_batch_size = 3", overlap="true", bucket=0.01, more=more)
        done = null_gpu.run(ranks, "train", config, *settings("run.cuda_graphs=true", "data.validation.fraction=0.25"), "--resume", "--strict")
        expect_trained(done, steps, tmp_path)
        assert done.total("graph_launches") > 0 and done.words.count("run as CUDA graphs") == 1, done.words


@pytest.mark.usefixtures("nvrtc")
def test_what_masks_of_a_round_are_drawn_by_is_written_before_each_replay(null_gpu, tmp_path):
    """Four rounds of one micro-batch each, that are computed again."""
    counts = {}
    for graphs in ("false", "true"):
        folder = tmp_path / graphs
        folder.mkdir()
        counts[graphs], _ = counts_with(null_gpu, folder, "mlp", graphs, 24, change="memory.recompute=2")
    assert counts["true"]["graph_launches"] == 4 and counts["true"]["to_device"] == counts["false"]["to_device"] >= 4
    assert counts["true"]["host_stops"] == counts["false"]["host_stops"] == 0


def test_what_exact_batch_norm_keeps_in_the_host_is_in_no_graph(null_gpu, tmp_path):
    config = configuration(tmp_path, "resnet", batch="micro_batch_size = 6", more=mode("exact"))
    assert null_gpu.run(1, "train", config, "--set", 'run.name="planned"').code == 0
    plan = read_json(tmp_path / "runs/planned/plan.json")
    plan["ranks"][0]["kept_in_host"] = True
    (tmp_path / "in-host.json").write_text(json.dumps(plan))
    done = null_gpu.run(1, "train", config, *settings("run.cuda_graphs=true"), "--plan", tmp_path / "in-host.json")
    expect_trained(done, 5, tmp_path)
    assert done.total("graph_launches") == 0 and done.words.count("keeps lies in the host's memory") == 1, done.words


@pytest.mark.parametrize("more, words", [('[batch_norm]\nmode = "exact"', "sums gradients as they arrive")])
def test_where_the_run_has_no_use_for_graphs_that_is_a_fallback_alone(null_gpu, tmp_path, more, words):
    config = configuration(tmp_path, "resnet", steps=3, batch="micro_batch_size = 6", deterministic='"bitwise"', more=more)
    for graphs in ('"auto"', "true"):
        done = null_gpu.run(1, "train", config, "--set", f"run.cuda_graphs={graphs}")
        assert done.code == 0 and done.total("graph_launches") == 0, done.words
        assert (words in done.words) == (graphs == "true"), done.words


@pytest.mark.usefixtures("nvrtc")
def test_each_size_has_a_graph(null_gpu, tmp_path):
    """Epochs of 96 samples in batches of 40: the last has 16, in micro-batches of 6, 6 and 4; the others end with one of 4."""
    config = configuration(tmp_path, "mlp", steps=24, batch='micro_batch_size = 6\nreplan = "never"', more="[verify]\nat_start = false")
    done = null_gpu.run(1, "train", config, *settings("batch.global_batch_size=40", "run.cuda_graphs=true"))
    expect_trained(done, 24, tmp_path)
    micro_steps = 16 * 7 + 8 * 3
    assert done.total("captures") == 2, done.words
    assert done.total("graph_launches") == micro_steps - 2 * 2


@pytest.mark.usefixtures("nvrtc")
def test_where_a_graph_finds_no_memory_the_run_goes_on_without(null_gpu, tmp_path):
    config = configuration(tmp_path, "mlp", batch="micro_batch_size = 6", more="[verify]\nat_start = false")
    known = settings("run.cuda_graphs=true")
    first = null_gpu.run(1, "train", config, *known)
    assert first.total("graph_launches") > 0
    struck = 0
    for number in range(first.counts[0]["first_allocation_of_a_capture"], first.counts[0]["first_allocation_of_a_capture"] + 3):
        done = null_gpu.run(1, "train", config, *known, "--set", f'run.name="fails-{number}"', fail_allocation=number)
        assert done.code == 0 and not done.defects, done.words
        struck += "there is no memory for a graph" in done.words
    assert struck > 0


def test_where_memory_ends_beside_graphs_the_step_is_made_again_without_them(null_gpu, tmp_path, monkeypatch):
    """Halves would have other batch statistics, and the plan is fixed: without the graphs there is room."""
    monkeypatch.setenv("ONEBATCH_FAULT", f"0 model 3 full {tmp_path / 'when'}")
    batch = 'micro_batch_size = 6\ngradient_accumulation_steps = 4\nreplan = "never"'
    config = configuration(tmp_path, "resnet", steps=5, batch=batch, more="[verify]\nat_start = false")
    done = null_gpu.run(1, "train", config, *settings("run.cuda_graphs=true"), program=null_gpu.build / "faulty_onebatch")
    expect_trained(done, 5, tmp_path)
    assert "micro-batches of 6 run as CUDA graphs from here on" in done.words and "a micro-batch ran out of memory beside them" in done.words, done.words


def test_graphs_are_given_up_where_not_as_much_memory_is_left_beside_them(null_gpu, tmp_path):
    """A micro-batch takes 80 MiB."""
    config = configuration(tmp_path, "resnet", steps=4, batch="micro_batch_size = 24", more="[verify]\nat_start = false")
    large = settings("run.cuda_graphs=true", "data.shape=[3, 64, 64]", "batch.global_batch_size=96")
    for left, graphs in ((1 << 30, True), (230 << 20, False)):
        done = null_gpu.run(1, "train", config, *large, "--set", f'run.name="of-{left}"', devices=[{"memory": (400 << 20) + left}])
        assert done.code == 0 and (done.total("graph_launches") > 0) == graphs, done.words
        assert ("not as much is left beside them" in done.words) != graphs, done.words


@pytest.mark.usefixtures("nvrtc")
def test_times_without_graphs_are_not_held_against_the_probes_cache(null_gpu, tmp_path):
    config = configuration(tmp_path, "mlp", steps=1500, batch="micro_batch_size = 6", more="[verify]\nat_start = false\n[log]\nevery_steps = 1000")
    for name in ("first", "second"):
        done = null_gpu.run(1, "train", config, *settings("batch.global_batch_size=96", f'run.name="{name}"'))
        assert done.code == 0 and done.total("graph_launches") > 0, done.words
        assert "what the probe's cache says" not in done.words, done.words
    assert "cache" in done.words, done.words
