"""Models saved from Python on the stand-in: what only a GPU's kernels, strides and refusals show."""
import pytest
import torch
from null_gpu.runs import expect_trained
from safetensors.torch import save_file
from torch import nn

CONFIGURATION = """
[run]
max_steps = 3
output_dir = "{folder}/runs"
name = "run"
device = "cuda"
deterministic = {deterministic}
[batch]
global_batch_size = 12
micro_batch_size = 6
[data]
kind = "safetensors"
path = "{folder}/data.safetensors"
[model]
kind = "torchscript"
path = "{folder}/model.pt"
[loss]
kind = "{loss}"
[precision]
compute = "{compute}"
channels_last = {order}
[batch_norm]
mode = "{mode}"
[memory]
recompute = {recompute}
[probe]
steps_per_trial = 1
"""
TOUCHES = 40  # as the code of Touching has it, since a script takes no number from outside


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8 * 64, 5)

    def features(self, x):
        return torch.relu(self.last(torch.relu(self.norm(self.first(x)))))

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


class Touching(Net):
    """Many kernels more, of no effect, where images lie in channels_last."""

    def forward(self, x):
        if not x.is_contiguous():
            for _ in range(40):
                x = x * 1.0
        return self.head(self.features(x).flatten(1))


class Viewing(Net):
    def forward(self, x):
        return self.head(self.features(x).view(x.shape[0], 512))


class OwnLoss(Net):
    """Its weight is a number that is made in the forward, which lies on the host."""

    def forward(self, x, y):
        logits = self.head(self.features(x).flatten(1))
        return nn.functional.cross_entropy(logits, y, reduction="sum"), torch.tensor(float(x.shape[0]))


class Upsampling(Net):
    def features(self, x):
        x = torch.relu(self.norm(self.first(x)))
        return self.last(nn.functional.interpolate(x, size=[8, 8], mode="bilinear", align_corners=False))


def write(folder, kind, how="script", order='"auto"', compute="float32", mode="local", recompute='"off"', loss="cross_entropy", deterministic="false"):
    torch.manual_seed(3)
    images = torch.randn(24, 3, 8, 8)
    save_file({"x": images, "y": torch.randint(0, 5, (24,))}, folder / "data.safetensors")
    model = kind().train()
    (torch.jit.script(model) if how == "script" else torch.jit.trace(model, images[:4], check_trace=False)).save(str(folder / "model.pt"))
    config = folder / "run.toml"
    config.write_text(CONFIGURATION.format(folder=folder, deterministic=deterministic, loss=loss, compute=compute, order=order, mode=mode, recompute=recompute))
    return config


def kernels_of_both(null_gpu, folder, config):
    """Under one plan, since how often the probe takes times depends on the machine: with the ordinary order, and with what the run chooses."""
    settings = ("--set", "verify.at_start=false")
    assert null_gpu.run(1, "train", config, *settings, "--set", 'run.name="planned"', "--set", "precision.channels_last=false").code == 0
    counts = []
    for name, order in (("ordinary", "false"), ("chosen", '"auto"')):
        done = null_gpu.run(1, "train", config, *settings, "--plan", folder / "runs/planned/plan.json", "--set", f"precision.channels_last={order}", "--set", f'run.name="{name}"')
        assert done.code == 0 and not done.defects, done.words
        counts.append(done.total("kernels"))
    return counts


@pytest.mark.parametrize("compute, more, is_on", [("bfloat16", "", True), ("float16", "", True), ("float32", "allow_tf32 = true", True), ("float32", "", False)])
def test_images_lie_in_channels_last_where_a_gpu_wins_by_it(null_gpu, tmp_path, compute, more, is_on):
    config = write(tmp_path, Touching, compute=compute)
    config.write_text(config.read_text().replace("[precision]", "[precision]\n" + more))
    ordinary, chosen = kernels_of_both(null_gpu, tmp_path, config)
    assert chosen >= ordinary + 6 * TOUCHES if is_on else abs(chosen - ordinary) < TOUCHES, (ordinary, chosen)


def test_a_trace_that_needs_rows_keeps_them_and_it_is_said_once(null_gpu, tmp_path):
    done = null_gpu.run(2, "train", write(tmp_path, Viewing, "trace", compute="bfloat16"))
    expect_trained(done, 3, tmp_path)
    assert done.words.count("precision.channels_last") == 1 and "aten::view" in done.words, done.words


def test_it_is_refused_where_it_was_asked_for(null_gpu, tmp_path):
    done = null_gpu.run(2, "train", write(tmp_path, Viewing, "trace", compute="bfloat16", order="true"))
    assert done.code == 2 and "precision.channels_last = true" in done.words and "aten::view" in done.words, done.words


@pytest.mark.parametrize("ranks, more", [(2, {"mode": "exact"}), (2, {"mode": "sync", "compute": "bfloat16"}), (1, {"recompute": "2"}), (2, {"compute": "float16"})])
def test_channels_last_under_every_way_to_train(null_gpu, tmp_path, ranks, more):
    expect_trained(null_gpu.run(ranks, "train", write(tmp_path, Net, order="true", **more)), 3, tmp_path)


@pytest.mark.parametrize("more", [{}, {"mode": "exact"}, {"recompute": "2"}])
def test_a_loss_whose_weight_is_made_on_the_host(null_gpu, tmp_path, more):
    done = null_gpu.run(1, "train", write(tmp_path, OwnLoss, loss="model", **more), "--set", "verify.at_start=false")
    assert "Expected all tensors" not in done.words and done.code == 0, done.words


@pytest.mark.parametrize("how", ["script", "trace"])
def test_an_operator_without_deterministic_form_is_refused_by_name(null_gpu, tmp_path, how):
    done = null_gpu.run(2, "train", write(tmp_path, Upsampling, how, deterministic="true"))
    assert done.code == 2, done.words
    assert all(word in done.words for word in ("run.deterministic", "aten::upsample_bilinear2d, after norm", "replace it in the model")), done.words
    assert not (tmp_path / "runs/run/metrics.jsonl").exists() or not (tmp_path / "runs/run/metrics.jsonl").read_text()
