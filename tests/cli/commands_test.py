"""Every command, its documents and the run's folder."""
import json
import re
import statistics

import pytest

from program import DIGITS_MLP, DIGITS_RESNET, ROOT, Scratch, read_json, read_json_lines, settings

PROFILE_FIELDS = {"rank", "host", "device", "memory_limit_bytes", "max_micro_batch", "peak_bytes", "step_seconds", "trials"}
PLAN_FIELDS = {"global_batch_size", "predicted_step_seconds", "equal_split_seconds", "memory_split_seconds", "ranks"}
TRAIN_FIELDS = {"steps", "consumed_samples", "train_loss", "validation_loss", "validation_accuracy", "samples_per_second", "step_seconds", "predicted_step_seconds",
                "out_of_memory_events", "replans", "run_dir",
                "checkpoints_saved", "checkpoint_waits", "checkpoint_seconds"}
METRIC_FIELDS = {"step", "epoch", "consumed_samples", "time", "loss", "lr", "grad_norm", "step_seconds", "compute_seconds", "data_wait_seconds", "exposed_comm_seconds", "samples_per_second",
                 "memory_peak_bytes"}
RUN_FILES = ("config.toml", "profile.json", "plan.json", "events.jsonl", "report.html", "metrics.jsonl", "samples.jsonl", "validation.jsonl", "metrics.csv", "validation.csv", "tensorboard", "result.json", "checkpoints/step-18/model.safetensors",
             "checkpoints/latest/state.json")


class Trained:
    """A whole run on two ranks."""

    def __init__(self, program, path):
        self.scratch = Scratch(path)
        self.config, self.path = self.scratch.config, path
        self.out = program.run(2, "train", self.config, "--json", path / "train.json")
        self.result = read_json(path / "train.json")
        self.folder = self.scratch.runs / "run"


@pytest.fixture(scope="module")
def trained(onebatch, tmp_path_factory):
    return Trained(onebatch, tmp_path_factory.mktemp("trained"))


def test_trains_document_has_its_fields(trained):
    assert TRAIN_FIELDS <= trained.result.keys()
    assert trained.result["steps"] == 18, "three epochs of 1,500 digits"
    assert trained.result["consumed_samples"] == 4500
    assert trained.result["run_dir"] == str(trained.folder)


@pytest.mark.parametrize("name", RUN_FILES)
def test_the_runs_folder_has(trained, name):
    assert (trained.folder / name).exists()


def test_validations_have_a_line_for_each_epoch(trained):
    lines = read_json_lines(trained.folder / "validation.jsonl")
    assert [(line["step"], line["epoch"], line["samples"]) for line in lines] == [(6, 1, 297), (12, 2, 297), (18, 3, 297)]
    assert lines[-1]["loss"] == pytest.approx(trained.result["validation_loss"], rel=1e-12)
    assert lines[-1]["accuracy"] == pytest.approx(trained.result["validation_accuracy"], rel=1e-12)


def test_metrics_have_a_line_for_each_step(trained):
    metrics = read_json_lines(trained.folder / "metrics.jsonl")
    assert len(metrics) == 18
    assert METRIC_FIELDS <= metrics[0].keys()
    assert len(metrics[0]["compute_seconds"]) == 2


def test_the_result_has_the_steps_median_and_what_95_percent_do_not_exceed(trained):
    seconds = [line["step_seconds"] for line in read_json_lines(trained.folder / "metrics.jsonl")]
    assert trained.result["step_seconds"]["median"] == pytest.approx(statistics.median(seconds), rel=1e-12), "of 18 the mean of the two in the middle"
    assert trained.result["step_seconds"]["p95"] == max(seconds)


def test_epochs_that_are_complete_are_counted_after_each_step(trained):
    assert [line["epoch"] for line in read_json_lines(trained.folder / "metrics.jsonl")] == [0] * 5 + [1] * 6 + [2] * 6 + [3]


def test_of_less_data_than_a_batch_the_prediction_is_of_the_steps_that_are_made(onebatch, scratch):
    onebatch.run(2, "train", scratch.config, *settings("batch.global_batch_size=2000"), "--json", scratch.path / "train.json")
    plan, result = read_json(scratch.runs / "run" / "plan.json"), read_json(scratch.path / "train.json")
    begins, = (line for line in read_json_lines(scratch.runs / "run" / "events.jsonl") if line["event"] == "training_begins")
    assert result["steps"] == 3 and plan["last_batch"]["global_batch_size"] == 1500
    assert result["predicted_step_seconds"] == begins["predicted_step_seconds"] == plan["last_batch"]["predicted_step_seconds"]
    assert result["predicted_step_seconds"] != plan["predicted_step_seconds"]


def test_the_plan_is_written_and_printed(trained):
    plan = read_json(trained.folder / "plan.json")
    assert PLAN_FIELDS <= plan.keys()
    assert sum(rank["samples"] for rank in plan["ranks"]) == 257
    assert plan["last_batch"]["global_batch_size"] == 1500 % 257
    assert "an equal split" in trained.out
    assert "idle" in trained.out


def test_the_configuration_that_the_folder_keeps_makes_the_same_run(onebatch, trained):
    onebatch.run(2, "plan", trained.folder / "config.toml")


def test_a_complete_run_says_so(onebatch, trained):
    assert "complete at step 18" in onebatch.run(2, "train", trained.config, "--resume")


def test_a_new_run_has_a_folder_of_its_own_and_quiet_is_quiet(onebatch, trained):
    out = onebatch.run(2, "train", trained.config, "--quiet")
    assert (trained.scratch.runs / "run-2").exists()
    assert "probe" not in out


def test_a_configuration_may_come_through_a_pipe(onebatch, scratch):
    words = [onebatch.path, "train", "/dev/stdin", *settings("run.max_steps=2", "run.name=piped")]
    done = onebatch.finish(words, input=scratch.config.read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    assert (scratch.runs / "piped/result.json").exists()


def test_eval_finds_trains_validation_loss(onebatch, trained):
    onebatch.run(1, "eval", trained.config, "--checkpoint", trained.folder, "--json", trained.path / "eval.json")
    assert abs(read_json(trained.path / "eval.json")["validation_loss"] - trained.result["validation_loss"]) < 1e-5


def test_a_saved_profile_is_planned_without_its_devices(onebatch, scratch):
    onebatch.run(2, "probe", scratch.config, "--json", scratch.path / "profile.json")
    profile = read_json(scratch.path / "profile.json")
    assert len(profile["ranks"]) == 2
    assert PROFILE_FIELDS <= profile["ranks"][0].keys()
    onebatch.run(1, "plan", scratch.config, "--profile", scratch.path / "profile.json", "--json", scratch.path / "plan.json")
    assert len(read_json(scratch.path / "plan.json")["ranks"]) == 2


def test_the_published_cluster_is_planned_without_a_gpu(onebatch):
    out = onebatch.run(1, "plan", "configs/v100-p100.toml", "--profile", "docs/profiles/v100-p100.json")
    assert "122.08 ms" in out
    assert "156.40 ms" in out


# Clusters that are not here.
CLUSTER = ("plan", "configs/v100-p100.toml", "--profiles", "docs/profiles", "--gradient-bytes", "102e6")


def test_the_published_cluster_is_planned_from_its_kinds_of_devices(onebatch, tmp_path):
    onebatch.run(1, *CLUSTER, "--devices", "4xV100-16GB,4xp100-16gb", "--html", tmp_path / "plan.html", "--json", tmp_path / "plan.json")
    assert [rank["samples"] for rank in read_json(tmp_path / "plan.json")["ranks"]] == [40] * 4 + [24] * 4
    page = (tmp_path / "plan.html").read_text()
    assert "(4 ranks)" in page and "V100 16 GB" in page and "P100 16 GB" in page
    assert "an equal split" in page, "the page compares"


def test_a_sweep_is_a_table_a_document_and_a_page(onebatch, tmp_path):
    out = onebatch.run(1, *CLUSTER, "--devices", "64xV100-16GB,64xP100-16GB", "--devices", "8xV100-16GB", "--global-batches", "1024,4096", "--prices", "V100-16GB=2.5,P100-16GB=1",
                       "--html", tmp_path / "sweep.html", "--json", tmp_path / "sweep.json")
    points = read_json(tmp_path / "sweep.json")["sweep"]
    assert len(points) == 4
    assert all(0 < point["efficiency"] <= 1 and point["cost_per_epoch"] > 0 for point in points)
    assert "samples/s" in out
    page = (tmp_path / "sweep.html").read_text()
    figures = re.findall(r'<script type="application/json">(.*?)</script>', page, re.S)
    drawn = [one[3] for curve in json.loads(figures[0])["curves"] for one in curve["bins"]]
    assert drawn == pytest.approx([point["samples_per_second"] for point in points], rel=1e-7)
    assert len(re.findall(r'<tr><th scope="row">', page)) == 4


def test_a_sweep_is_drawn_from_the_smallest_batch_on_however_it_was_asked_for(onebatch, tmp_path):
    onebatch.run(1, *CLUSTER, "--devices", "8xV100-16GB", "--global-batches", "4096,1024", "--html", tmp_path / "sweep.html")
    for figure in re.findall(r'<script type="application/json">(.*?)</script>', (tmp_path / "sweep.html").read_text(), re.S):
        chart = json.loads(figure)
        assert chart["x"] == [1024, 4096]
        assert [one[0] for one in chart["curves"][0]["bins"]] == [1024, 4096]


@pytest.mark.parametrize("arguments, words", (
    (("--devices", "4xH100"), "known are"),
    (("--devices", "H100"), "no group of devices"),
    (("--devices", "4xV100-16GB", "--html", "/nowhere/plan.html"), "there is no folder"),
))
def test_a_cluster_that_cannot_be_planned_is_refused(onebatch, arguments, words):
    assert words in onebatch.run(1, *CLUSTER, *arguments, code=2)


def test_a_sweep_without_profiles_is_refused(onebatch, scratch):
    assert "needs --profile" in onebatch.run(1, "plan", scratch.config, "--global-batches", "64,128", code=2)


def test_verify_passes_and_says_what_it_compared_with(onebatch, scratch):
    out = onebatch.run(2, "verify", scratch.config, "--json", scratch.path / "verify.json")
    verified = read_json(scratch.path / "verify.json")
    assert verified["pass"]
    assert verified["relative_l2"] < 2e-6
    assert verified["parameters"][0].keys() >= {"name", "relative_l2", "max_abs"}
    assert "PASS" in out
    assert verified["reference"].startswith("all 257 samples")


def test_verify_fails_above_its_tolerance(onebatch, scratch):
    onebatch.run(2, "verify", scratch.config, "--tolerance", "1e-30", code=5)


def test_info_names_the_libraries(onebatch, tmp_path):
    assert "libtorch: 2." in onebatch.run(1, "info", "--json", tmp_path / "info.json")
    assert "nccl" in read_json(tmp_path / "info.json")


@pytest.mark.parametrize("flag, words", (("--version", "onebatch 0."), ("--help", "train")))
def test_a_flag_is_answered(onebatch, flag, words):
    assert words in onebatch.run(1, flag)


@pytest.fixture(scope="module")
def unvalidated(onebatch, tmp_path_factory):
    """Trained without [data.validation], where no t10k files are."""
    made = Scratch(tmp_path_factory.mktemp("unvalidated"), DIGITS_MLP.replace("[data.validation]\n", "").replace("data/digits", "{runs}/../train-only"))
    (made.path / "train-only").mkdir()
    for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"):
        (made.path / "train-only" / name).write_bytes((ROOT / "data" / "digits" / name).read_bytes())
    made.out = onebatch.run(2, "train", made.config, "--json", made.path / "train.json")
    return made


def test_without_a_validation_set_train_validates_nothing(unvalidated):
    assert "validation" not in unvalidated.out
    assert read_json(unvalidated.path / "train.json")["validation_loss"] is None
    assert "data.validation" not in (unvalidated.runs / "run" / "config.toml").read_text()


def test_without_a_validation_set_eval_says_what_it_needs(onebatch, unvalidated):
    out = onebatch.run(2, "eval", unvalidated.config, "--checkpoint", unvalidated.runs / "run", code=2)
    assert "eval needs [data.validation]" in out


def test_a_validation_set_needs_its_files(onebatch, unvalidated):
    assert "t10k" in onebatch.run(1, "train", unvalidated.config, *settings("data.validation.kind=idx", "run.name=v"), code=2)


@pytest.fixture
def resnet(tmp_path):
    return Scratch(tmp_path, DIGITS_RESNET)


def test_verify_names_local_batch_norm_and_how_much_it_differs(onebatch, resnet):
    out = onebatch.run(2, "verify", resnet.config, "--json", resnet.path / "local.json", code=5)
    assert "BatchNorm is local" in out
    assert "bn1" in out
    local = read_json(resnet.path / "local.json")
    assert [difference["cause"] for difference in local["differences"]] == ["batch_norm"]
    assert local["differences"][0]["relative_l2"] == pytest.approx(local["relative_l2"], rel=1e-3)
    assert "layer1.0.conv1.weight" in {parameter["name"] for parameter in local["parameters"]}


@pytest.mark.parametrize("ranks, pairs", ((2, ("batch_norm.frozen=true",)), (1, ("memory.recompute=4", "batch_norm.frozen=true"))))
def test_verify_passes_with_frozen_batch_norm(onebatch, resnet, ranks, pairs):
    onebatch.run(ranks, "verify", resnet.config, *settings(*pairs))


def test_verify_cannot_judge_where_a_single_batch_in_bfloat16_is_itself_off(onebatch, resnet):
    out = onebatch.run(2, "verify", resnet.config, *settings("batch_norm.mode=exact", "precision.compute=bfloat16"), "--json", resnet.path / "short.json", code=5)
    short = read_json(resnet.path / "short.json")
    assert "bfloat16, BatchNorm exact" in out
    assert "CANNOT JUDGE in bfloat16" in out
    assert short["verdict"] == "cannot_judge"
    assert short["cause"] == "precision"
    assert short["float64"]["pass"]


def test_devices_that_the_cpu_simulates_are_said_in_words(onebatch, scratch):
    said = onebatch.run(2, "probe", scratch.config, "--set", 'simulate.devices=[{memory = "256MiB", slowdown = 2.5}, {}]')
    assert "CPU simulating 256 MiB, 2.5x slower  " in said and "CPU simulating any memory  " in said
    assert "min micro-batch  max measured  max planned" in said and re.search(r"measuring took \d+\.\d s", said)
    assert "CPU simulating 100 KiB (limit 100 KiB)" in onebatch.run(1, "probe", scratch.config, "--set", 'simulate.devices=[{memory = "100KiB"}]', code=3)


def test_a_complete_run_that_goes_on_says_no_loss_that_it_has_not_seen(onebatch, scratch):
    onebatch.run(1, "train", scratch.config, "--quiet", "--set", "run.epochs=1")
    said = onebatch.run(1, "train", scratch.config, "--resume", "--set", "run.epochs=1", "--json", scratch.path / "again.json")
    assert "none of them now" in said and "train loss" not in said
    again = read_json(scratch.path / "again.json")
    assert again["steps"] == 6 and again["step_seconds"] == {"median": None, "p95": None}
    assert [again[name] for name in ("train_loss", "samples_per_second", "predicted_step_seconds")] == [None] * 3
