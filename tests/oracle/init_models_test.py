"""`onebatch init` with a model from Python: what it writes for tokens and for a model that returns its own loss trains at once."""
import subprocess

import pytest

torch = pytest.importorskip("torch")
save_file = pytest.importorskip("safetensors.torch").save_file

BATCH = torch.export.Dim("batch", min=1, max=4096)


class Words(torch.nn.Module):
    """Predicts the next token from this one."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(256, 8)
        self.head = torch.nn.Linear(8, 256)

    def forward(self, tokens):
        return self.head(self.table(tokens))


class OwnLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 3)

    def forward(self, x, target):
        loss = torch.nn.functional.cross_entropy(self.fc(x), target, reduction="sum")
        return loss, torch.ones_like(target, dtype=x.dtype).sum()


def export(model, file, *inputs):
    torch.export.save(torch.export.export(model, inputs, dynamic_shapes=tuple({0: BATCH} for _ in inputs), strict=False), str(file))


@pytest.fixture
def init_and_train(onebatch, tmp_path):
    def run(*arguments):
        for command in (["init", *arguments, "--out", "made.toml"], ["train", "made.toml", "--quiet", "--set", "run.max_steps=3"]):
            done = subprocess.run([onebatch.path, *command], cwd=tmp_path, env=onebatch.environment, capture_output=True, text=True, timeout=200)
            assert done.returncode == 0, done.stdout + done.stderr
        return (tmp_path / "made.toml").read_text()

    return run


def test_a_text_and_a_model_that_is_named(init_and_train, tmp_path):
    (tmp_path / "corpus.txt").write_text("to be or not to be, that is the question: " * 500)
    export(Words(), tmp_path / "words.pt2", torch.randint(0, 256, (3, 96)))
    assert 'path = "words.pt2"' in init_and_train("corpus.txt", "--model", "words.pt2")


class TwoColumns(torch.nn.Module):
    """Both of one type and shape: only their names tell them apart."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(11, 8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask):
        return self.head((self.table(input_ids) * attention_mask[:, :, None]).mean(1))


def test_inputs_are_in_the_order_of_the_models_forward(init_and_train, tmp_path):
    ids = torch.randint(0, 11, (40, 7))
    save_file({"input_ids": ids, "attention_mask": torch.ones_like(ids), "label": torch.randint(0, 3, (40,))}, tmp_path / "data.safetensors")
    export(TwoColumns(), tmp_path / "model.pt2", ids[:3], torch.ones_like(ids)[:3])
    assert 'inputs = ["input_ids", "attention_mask"]' in init_and_train("data.safetensors", "--model", "model.pt2")


def test_a_model_that_lies_beside_the_tokens(init_and_train, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/corpus.txt").write_text("to be or not to be, that is the question: " * 500)
    export(Words(), tmp_path / "set/words.pt2", torch.randint(0, 256, (3, 96)))
    assert 'path = "set/words.pt2"' in init_and_train("set")


def test_a_model_with_its_own_loss(init_and_train, tmp_path):
    save_file({"x": torch.randn(64, 6), "y": torch.randint(0, 3, (64,))}, str(tmp_path / "data.safetensors"))
    export(OwnLoss(), tmp_path / "own.pt2", torch.randn(3, 6), torch.randint(0, 3, (3,)))
    assert 'kind = "model"' in init_and_train("data.safetensors", "--model", "own.pt2")


def test_a_model_that_takes_other_inputs_is_refused(onebatch, tmp_path):
    save_file({"a": torch.randn(64, 6), "b": torch.randn(64, 2), "y": torch.randint(0, 3, (64,))}, str(tmp_path / "data.safetensors"))
    export(torch.nn.Linear(6, 3), tmp_path / "one.pt2", torch.randn(3, 6))
    done = subprocess.run([onebatch.path, "init", "data.safetensors", "--model", "one.pt2"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "takes 1 tensor(s), and a sample has 2 for it" in done.stderr
    assert not (tmp_path / "data.toml").exists()
