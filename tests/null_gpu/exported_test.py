"""Programs of torch.export on the stand-in: strides that only a GPU's kernels give, frozen weights, every way to train."""
import pathlib
import sys

import pytest
import torch
from null_gpu.runs import EXPORTED, counts_between, expect_trained
from safetensors.torch import save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "oracle"))
from exported_models import MODELS, export  # noqa: E402

SAMPLES = 24


def write(folder, name, compute="float32", mode="local", recompute='"off"', model="", steps=3, micro=6):
    torch.manual_seed(3)
    make, inputs, targets = MODELS[name]
    export(make().train(), folder / "model.pt2", inputs(4))
    given = {f"x{i}": tensor for i, tensor in enumerate(inputs(SAMPLES))}
    save_file({**given, "y": targets(SAMPLES)}, folder / "data.safetensors")
    config = folder / "run.toml"
    config.write_text(EXPORTED.format(folder=folder, runs=folder / "runs", inputs=list(given), compute=compute, mode=mode, recompute=recompute, model=model, steps=steps, micro=micro))
    return config


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("own_loss", "outputs", "autocast")])
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_every_kind_of_program_trains_on_strides_that_its_export_did_not_see(null_gpu, tmp_path, name, compute):
    expect_trained(null_gpu.run(1, "train", write(tmp_path, name, compute)), 3, tmp_path)


@pytest.mark.parametrize("ranks, more", [(2, {"mode": "exact"}), (2, {"mode": "sync", "compute": "bfloat16"}), (1, {"recompute": "2"}), (2, {"compute": "float16"})])
def test_programs_under_every_way_to_train(null_gpu, tmp_path, ranks, more):
    expect_trained(null_gpu.run(ranks, "train", write(tmp_path, "conv_net", **more)), 3, tmp_path)


@pytest.mark.parametrize("name, frozen", [("conv_net", '["stem.*"]'), ("encoder", '["embed.*", "encoder.layers.0.*"]')])
def test_weights_that_are_not_trained(null_gpu, tmp_path, name, frozen):
    expect_trained(null_gpu.run(2, "train", write(tmp_path, name, model=f"freeze = {frozen}")), 3, tmp_path)


@pytest.mark.parametrize("ranks, stops", [(1, 0), (2, 1)])
def test_host_stops_of_a_step_of_a_gpt(null_gpu, tmp_path, ranks, stops):
    counts, words = counts_between(null_gpu, tmp_path, lambda steps: write(tmp_path, "gpt", steps=steps, micro=3), ranks)
    assert [rank["host_stops"] for rank in counts] == [stops] * ranks, words


def test_check_runs_a_program_on_the_device(null_gpu, tmp_path):
    write(tmp_path, "encoder")
    save_file({"000": MODELS["encoder"][1](5)[0]}, tmp_path / "given.safetensors")
    done = null_gpu.run(1, "check", tmp_path / "model.pt2", "--inputs", tmp_path / "given.safetensors", "--save", tmp_path / "found.safetensors", "--device", "cuda")
    assert done.code == 0 and not done.defects, done.words
    assert done.total("kernels") > 0 and (tmp_path / "found.safetensors").exists()
