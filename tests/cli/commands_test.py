#!/usr/bin/env python3
"""Every command, its documents and the run's folder."""
from common import *

PROFILE_FIELDS = {"rank", "host", "device", "memory_limit_bytes", "max_micro_batch", "peak_bytes", "step_seconds", "trials"}
PLAN_FIELDS = {"global_batch_size", "predicted_step_seconds", "equal_split_seconds", "memory_split_seconds", "ranks"}
TRAIN_FIELDS = {"steps", "consumed_samples", "train_loss", "validation_loss", "validation_accuracy", "samples_per_second", "step_seconds", "predicted_step_seconds",
                "out_of_memory_events", "replans", "run_dir",
                "checkpoints_saved", "checkpoint_waits", "checkpoint_seconds"}
METRIC_FIELDS = {"step", "epoch", "consumed_samples", "loss", "lr", "grad_norm", "step_seconds", "compute_seconds", "exposed_comm_seconds", "samples_per_second",
                 "memory_peak_bytes"}

with Scratch() as s:
    out = run(2, "train", s.config, "--json", s.path / "train.json")
    result = read_json(s.path / "train.json")
    check(TRAIN_FIELDS <= result.keys(), "train's document lacks fields", str(result))
    check(result["steps"] == 18 and result["consumed_samples"] == 4500, "three epochs of 1,500 digits", str(result))
    folder = s.runs / "run"
    check(result["run_dir"] == str(folder), "the run's folder is named", str(result))
    for name in ("config.toml", "profile.json", "plan.json", "metrics.jsonl", "samples.jsonl", "result.json", "checkpoints/step-18/model.safetensors", "checkpoints/latest/state.json"):
        check((folder / name).exists(), f"the run's folder lacks {name}", out)
    metrics = read_json_lines(folder / "metrics.jsonl")
    check(len(metrics) == 18 and METRIC_FIELDS <= metrics[0].keys() and len(metrics[0]["compute_seconds"]) == 2, "metrics.jsonl", str(metrics[:1]))
    plan = read_json(folder / "plan.json")
    check(PLAN_FIELDS <= plan.keys() and sum(r["samples"] for r in plan["ranks"]) == 257, "plan.json", str(plan))
    check(plan["last_batch"]["global_batch_size"] == 1500 % 257, "the short last batch has a plan", str(plan))
    check("an equal split" in out and "idle" in out, "the plan is printed", out)

    # The configuration that the run's folder keeps makes the same run.
    run(2, "plan", folder / "config.toml")

    out = run(2, "train", s.config, "--resume")
    check("complete at step 18" in out, "a complete run says so", out)
    out = run(2, "train", s.config, "--quiet")
    check((s.runs / "run-2").exists() and "probe" not in out, "a new run has a folder of its own, and --quiet is quiet", out)

    run(1, "eval", s.config, "--checkpoint", folder, "--json", s.path / "eval.json")
    evaluated = read_json(s.path / "eval.json")
    check(abs(evaluated["validation_loss"] - result["validation_loss"]) < 1e-5, "eval finds train's validation loss", str(evaluated))

    run(2, "probe", s.config, "--json", s.path / "profile.json")
    profile = read_json(s.path / "profile.json")
    check(len(profile["ranks"]) == 2 and PROFILE_FIELDS <= profile["ranks"][0].keys(), "the profile", str(profile))
    out = run(1, "plan", s.config, "--profile", s.path / "profile.json", "--json", s.path / "plan.json")
    check(len(read_json(s.path / "plan.json")["ranks"]) == 2, "a saved profile is planned without its devices", out)
    check((folder / "plan.svg").read_text().startswith("<svg"), "the plan's picture is in the run's folder", out)

    # Clusters that are not here.
    cluster = ["plan", "configs/v100-p100.toml", "--profiles", "docs/profiles", "--gradient-bytes", "102e6"]
    out = run(1, *cluster, "--devices", "4xV100-16GB,4xp100-16gb", "--svg", s.path / "plan.svg", "--json", s.path / "plan.json")
    check([r["samples"] for r in read_json(s.path / "plan.json")["ranks"]] == [40] * 4 + [24] * 4, "the published cluster from its kinds of devices", out)
    check("an equal split" in (s.path / "plan.svg").read_text(), "the picture shows before and after", out)
    out = run(1, *cluster, "--devices", "64xV100-16GB,64xP100-16GB", "--devices", "8xV100-16GB", "--global-batches", "1024,4096", "--prices", "V100-16GB=2.5,P100-16GB=1",
              "--svg", s.path / "sweep.svg", "--json", s.path / "sweep.json")
    points = read_json(s.path / "sweep.json")["sweep"]
    check(len(points) == 4 and all(0 < p["efficiency"] <= 1 and p["cost_per_epoch"] > 0 for p in points), "a sweep", str(points))
    check("samples/s" in out and "<path" in (s.path / "sweep.svg").read_text(), "a sweep is shown", out)
    check("known are" in run(1, *cluster, "--devices", "4xH100", code=2), "a device without a profile")
    check("no group of devices" in run(1, *cluster, "--devices", "H100", code=2), "a list that is none")
    check("there is no folder" in run(1, *cluster, "--devices", "4xV100-16GB", "--svg", "/nowhere/plan.svg", code=2), "a picture's folder")
    check("needs --profile" in run(1, "plan", s.config, "--global-batches", "64,128", code=2), "a sweep without profiles")

    out = run(2, "verify", s.config, "--json", s.path / "verify.json")
    verified = read_json(s.path / "verify.json")
    check(verified["pass"] and verified["relative_l2"] < 2e-6 and verified["parameters"][0].keys() >= {"name", "relative_l2", "max_abs"}, "verify", str(verified))
    check("PASS" in out and verified["reference"].startswith("all 257 samples"), "verify says what it compared with", out)
    run(2, "verify", s.config, "--tolerance", "1e-30", code=5)

    out = run(1, "info", "--json", s.path / "info.json")
    check("libtorch: 2." in out and "nccl" in read_json(s.path / "info.json"), "info", out)
    check("onebatch 0." in run(1, "--version"), "--version")
    check("train" in run(1, "--help"), "--help")

# Without [data.validation] nothing is validated: not by train, not by eval, not in what the run's folder says; and no t10k files are looked for.
with Scratch(DIGITS_MLP.replace("[data.validation]\n", "").replace("data/digits", "{runs}/../train-only")) as s:
    (s.path / "train-only").mkdir()
    for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"):
        (s.path / "train-only" / name).write_bytes((ROOT / "data" / "digits" / name).read_bytes())
    out = run(2, "train", s.config, "--json", s.path / "train.json")
    check("validation" not in out and read_json(s.path / "train.json")["validation_loss"] is None, "train validates nothing", out)
    check("data.validation" not in (s.runs / "run" / "config.toml").read_text(), "the run's configuration has no validation set")
    out = run(2, "eval", s.config, "--checkpoint", s.runs / "run", code=2)
    check("eval needs validation data: write [data.validation]" in out, "eval without validation data", out)
    check("t10k" in run(1, "train", s.config, "--set", "data.validation.kind=idx", "--set", "run.name=v", code=2), "a validation set needs its files")

# BatchNorm's local statistics are not the large batch's, and verify says so.
RESNET = DIGITS_MLP.replace('kind = "mlp"\nhidden = [64, 48]', 'kind = "resnet"\ndepth = 8\nstem = "cifar"')
with Scratch(RESNET) as s:
    out = run(2, "verify", s.config, "--json", s.path / "local.json", "--svg", s.path / "local.svg", code=5)
    check("BatchNorm is local" in out and "bn1" in out, "verify names what makes the difference", out)
    local = read_json(s.path / "local.json")
    check([d["cause"] for d in local["differences"]] == ["batch_norm"], "verify says what makes the difference", str(local["differences"]))
    check(abs(local["differences"][0]["relative_l2"] - local["relative_l2"]) <= 1e-3 * local["relative_l2"], "and how large it is", str(local["differences"]))
    picture = (s.path / "local.svg").read_text()
    check(picture.count("<circle") == 2 + 2 * len(local["parameters"]) and "FAIL" in picture and "layer1.0.conv1.weight" in picture, "verify draws each parameter's error", picture)
    run(2, "verify", s.config, "--set", "batch_norm.frozen=true")
    # One single batch in bfloat16 is itself 7 % off: that is no pass, and float64 says what splitting does.
    out = run(2, "verify", s.config, "--set", "batch_norm.mode=exact", "--set", "precision.compute=bfloat16", "--json", s.path / "short.json", code=5)
    short = read_json(s.path / "short.json")
    check("bfloat16, BatchNorm exact" in out and "CANNOT JUDGE in bfloat16" in out, "verify says in what it has computed", out)
    check(short["verdict"] == "cannot_judge" and short["cause"] == "precision" and short["float64"]["pass"], "verify says what it cannot judge", str(short["verdict"]))
    run(1, "verify", s.config, "--set", "memory.recompute=4", "--set", "batch_norm.frozen=true")

# The published cluster, planned without a GPU.
out = run(1, "plan", "configs/v100-p100.toml", "--profile", "docs/profiles/v100-p100.json")
check("122.08 ms" in out and "156.40 ms" in out, "the published cluster's plan", out)
print("commands hold")
