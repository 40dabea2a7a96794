"""Predictions and metrics of models that come from Python, against PyTorch: several outputs, text, sequences of unlike lengths, models that compute their loss."""
import math

import pytest

torch = pytest.importorskip("torch")
tensors = pytest.importorskip("safetensors.torch")
from torch import nn  # noqa: E402

from program import SGD_IN_FLOAT64, read_json, read_json_lines, settings  # noqa: E402

CONFIG = """
[run]
max_steps = 2
output_dir = "{folder}/runs"
name = "run"
[batch]
global_batch_size = 8
[data]
kind = "safetensors"
path = "{folder}/data.safetensors"
{data}
[data.validation]
path = "{folder}/validation.safetensors"
[model]
kind = "exported"
path = "{folder}/model.pt2"
[probe]
steps_per_trial = 1
""" + SGD_IN_FLOAT64
ROWS, LENGTH, VOCABULARY = 37, 6, 11


class TwoHeads(nn.Module):
    """Logits and, first, a hidden state."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        return {"hidden": hidden.view(-1, 2, 3), "logits": self.head(hidden)}


class Words(nn.Module):
    """The logits of the next word at each place."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(VOCABULARY, 8), nn.Linear(8, VOCABULARY)

    def forward(self, x):
        return self.head(torch.tanh(self.words(x)).cumsum(1))


class OwnLoss(Words):
    def forward(self, x, y):
        return nn.functional.cross_entropy(super().forward(x).flatten(0, 1), y.flatten(), reduction="sum"), torch.tensor(1.0) * y.numel()


def export(path, model, *inputs):
    batch = torch.export.Dim("batch", min=1, max=4096)
    torch.export.save(torch.export.export(model.train(), inputs, dynamic_shapes=tuple({0: batch} for _ in inputs)), path)


def save(folder, columns):
    """Trained and validated with."""
    for name in ("data", "validation"):
        tensors.save_file(columns, folder / f"{name}.safetensors")


def generator(seed):
    return torch.Generator().manual_seed(seed)


def words(seed):
    return torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=generator(seed))


@pytest.fixture
def train(onebatch, tmp_path):
    """Exports, trains on `ranks`; the model in Python with the weights that came of it, and the configuration."""

    def run(model, columns, example, *sets, data="", ranks=2):
        save(tmp_path, columns)
        export(tmp_path / "model.pt2", model.double(), *example)
        config = tmp_path / "run.toml"
        config.write_text(CONFIG.format(folder=tmp_path, data=data))
        onebatch.run(ranks, "train", config, *sets)
        model.load_state_dict(tensors.load_file(tmp_path / "runs/run/checkpoints/step-2/model.safetensors"))
        return model.eval(), config

    return run


@pytest.fixture
def predict(onebatch, tmp_path):
    def run(config, ranks, *sets, code=0):
        said = onebatch.run(ranks, "predict", config, "--checkpoint", tmp_path / "runs/run", "--out", tmp_path / "out.safetensors", "--force", *sets, code=code)
        return tensors.load_file(tmp_path / "out.safetensors") if code == 0 else said

    return run


def test_no_sample_is_left_alone(onebatch, predict, tmp_path):
    """One more than a block: by itself, a model whose batch norm has no running statistics does not take it."""
    columns = {"x": torch.randn(257, 4, dtype=torch.float64, generator=generator(1)), "y": torch.arange(257) % 3}
    save(tmp_path, columns)
    tensors.save_file({name: column[:256].clone() for name, column in columns.items()}, tmp_path / "data.safetensors")
    model = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3)).double()
    torch.jit.script(model).save(tmp_path / "model.pt")
    config = tmp_path / "run.toml"
    config.write_text(CONFIG.format(folder=tmp_path, data="").replace('"exported"', '"torchscript"').replace("model.pt2", "model.pt"))
    onebatch.run(1, "train", config)
    for ranks in (1, 2):
        found = predict(config, ranks)
        assert found["outputs"].shape == (257, 3) and found["sample"].tolist() == list(range(257))


@pytest.mark.parametrize("ranks", (1, 3))
def test_several_outputs_are_all_written_in_the_order_in_which_they_are_returned(train, predict, ranks):
    x = torch.randn(ROWS, 4, dtype=torch.float64, generator=generator(1))
    model, config = train(TwoHeads(), {"x": x, "y": torch.arange(ROWS) % 3}, (x[:3],))
    found = predict(config, ranks)
    expected = model(x)
    assert sorted(found) == ["output_0", "output_1", "sample"]
    torch.testing.assert_close(found["output_0"], expected["hidden"], rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(found["output_1"], expected["logits"], rtol=1e-13, atol=1e-14)
    alone = predict(config, ranks, *settings('model.output="hidden"'))
    assert sorted(alone) == ["outputs", "sample"] and torch.equal(alone["outputs"], found["output_0"])


@pytest.mark.parametrize("ranks", (1, 2, 3))
def test_perplexity_of_text_is_that_of_all_labels_that_count(train, onebatch, tmp_path, ranks):
    x, y = words(2), words(3)
    y[torch.rand(ROWS, LENGTH, generator=generator(4)) < 0.3] = -100
    weights = torch.rand(ROWS, LENGTH, dtype=torch.float64, generator=generator(5))
    model, config = train(Words(), {"x": x, "y": y, "w": weights}, (x[:3],), *settings("loss.label_smoothing=0.2"), data='weights = "w"', ranks=ranks)
    each = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none").view(ROWS, LENGTH)
    expected = math.exp(((each * weights).sum() / (weights * (y != -100)).sum()).item())
    line = read_json_lines(tmp_path / "runs/run/validation.jsonl")[-1]
    assert list(line)[-3:] == ["loss", "accuracy", "perplexity"]  # without being asked for
    assert line["perplexity"] == pytest.approx(expected, rel=1e-12)
    onebatch.run(ranks, "eval", config, "--checkpoint", tmp_path / "runs/run", "--json", tmp_path / "eval.json", *settings('run.metrics=["top_3", "f1_macro"]'))
    found = read_json(tmp_path / "eval.json")["validation_metrics"]
    kept = y != -100
    places = (model(x) > model(x).gather(2, y.clamp(min=0).unsqueeze(2))).sum(2)[kept]
    predicted, labels = model(x).argmax(2)[kept], y[kept]
    scores = [2 * ((labels == c) & (predicted == c)).sum().item() / both for c in range(VOCABULARY)
              if (both := ((labels == c).sum() + (predicted == c).sum()).item()) > 0]
    assert found == pytest.approx({"top_3": (places < 3).double().mean().item(), "f1_macro": sum(scores) / len(scores)}, rel=1e-12)


@pytest.mark.parametrize("ranks", (1, 3))
def test_of_sequences_each_position_is_a_row_and_padding_is_none(train, onebatch, tmp_path, ranks):
    x = torch.randn(ROWS, LENGTH, 4, dtype=torch.float64, generator=generator(1))
    y = torch.randn(ROWS, LENGTH, 2, dtype=torch.float64, generator=generator(2)) + torch.tensor([0.0, 1e6])
    lengths = torch.randint(1, LENGTH + 1, (ROWS,), generator=generator(3))
    batch, length = torch.export.Dim("batch", min=1, max=4096), torch.export.Dim("length", min=1, max=4096)
    model = nn.Linear(4, 2).double()
    there = torch.arange(LENGTH) < lengths.unsqueeze(1)
    save(tmp_path, {"x": x, "y": y, "n": lengths, "w": there.unsqueeze(2).expand(y.shape).to(y.dtype).contiguous()})
    torch.export.save(torch.export.export(model.train(), (x[:3],), dynamic_shapes=({0: batch, 1: length},)), tmp_path / "model.pt2")
    config = tmp_path / "run.toml"
    config.write_text(CONFIG.format(folder=tmp_path, data='lengths = "n"\nweights = "w"') + '[loss]\nkind = "mse"\n')
    onebatch.run(ranks, "train", config, *settings("optimizer.lr=1e-15"))
    model.load_state_dict(tensors.load_file(tmp_path / "runs/run/checkpoints/step-2/model.safetensors"))
    errors, wanted = (y - model(x))[there], y[there]
    r2 = 1 - (errors ** 2).sum(0) / ((wanted - wanted.mean(0)) ** 2).sum(0)
    line = read_json_lines(tmp_path / "runs/run/validation.jsonl")[-1]
    assert line["mean_absolute_error"] == pytest.approx(errors.abs().mean().item(), rel=1e-12)
    assert line["r2"] == pytest.approx(r2.mean().item(), rel=1e-12)


def test_a_model_that_computes_its_loss_has_perplexity_and_nothing_to_predict(train, predict, onebatch, tmp_path):
    x, y = words(2), words(3)
    own = settings('loss.kind="model"', 'run.metrics=["perplexity"]')
    _, config = train(OwnLoss(), {"x": x, "y": y}, (x[:3], y[:3]), *own)
    line = read_json_lines(tmp_path / "runs/run/validation.jsonl")[-1]
    assert line["perplexity"] == pytest.approx(math.exp(line["loss"]), rel=1e-15)
    assert "the model returns its loss's sum and its weight and no outputs" in predict(config, 2, *own, code=2)
    assert not (tmp_path / "out.safetensors").exists()
    out = onebatch.run(1, "eval", config, "--checkpoint", tmp_path / "runs/run", *settings('loss.kind="model"', 'run.metrics=["f1_macro"]'), code=2)
    assert '"f1_macro" does not belong to loss.kind = "model": write some of "loss" and "perplexity"' in out
