"""configs/text.toml and configs/images.toml as they stand, from the files to a validated model, with the commands of the documents."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numpy")

from image_folders import png  # noqa: E402
from program import ROOT, read_json  # noqa: E402

# As Hugging Face's GPT-2 calls its parts, and as it returns logits: [blocks, positions, tokens], 256 of each.
SMALL_MODEL = """
import torch

BLOCK = 256


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.past = torch.nn.Embedding(256, 32), torch.nn.Linear(64, 32)
        self.h = torch.nn.ModuleDict({"ln_1": torch.nn.LayerNorm(32), "head": torch.nn.Linear(32, 256)})

    def forward(self, input_ids):
        words = self.wte(input_ids)
        before = torch.nn.functional.pad(words, (0, 0, 1, 0))[:, :-1]
        return self.h["head"](self.h["ln_1"](torch.tanh(self.past(torch.cat([words, before], -1)))))


def build():
    return Small(), {"input_ids": torch.randint(0, 256, (4, BLOCK))}
"""


def document(name):
    return (ROOT / "docs" / name).read_text()


def block_after(text, heading, language):
    """The first one of that language behind the heading."""
    return re.search(rf"```{language}\n(.*?)```", text[text.index(heading) :], re.S)[1]


@pytest.fixture
def shell(onebatch, tmp_path):
    """Runs a command in a folder that has configs/ and the program."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/onebatch").symlink_to(onebatch.path)
    (tmp_path / "build").symlink_to(pathlib.Path(onebatch.path).parent)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    path = os.pathsep.join([str(tmp_path / "bin"), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    environment = dict(onebatch.environment, PATH=path, PYTHONPATH=str(ROOT / "python"), ONEBATCH=onebatch.path, OMP_NUM_THREADS="1", OMPI_MCA_rmaps_base_oversubscribe="1")

    def run(command, code=0):
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout + done.stderr

    return run


def test_text_toml_trains_on_a_text(shell, tmp_path):
    """256 positions of 256 bytes."""
    data = document("data.md")
    (tmp_path / "text_data.py").write_text(block_after(data, "<!-- file: text_data.py -->", "python"))
    (tmp_path / "gpt2.py").write_text(SMALL_MODEL)
    (tmp_path / "my_text.txt").write_text("".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))))
    prepare, export, train = block_after(data, "language_models.md#gpt-2-on-your-own-text", "sh").splitlines()
    shell(prepare)
    shell(export)
    shell(f"{train} --set run.epochs=2 --set schedule.warmup_steps=2 --set optimizer.lr=0.02 --json result.json")
    assert read_json(tmp_path / "result.json")["validation_loss"] < 4.0  # nats a byte; a guess has ln 256 = 5.545
    said = shell(f"{train} --set loss.class_dim=auto --set run.name=refused", code=2)
    assert 'loss.class_dim = "last"' in said, said


def test_images_toml_trains_on_folders(shell, tmp_path):
    for split, count in (("train", 6), ("val", 2)):
        for label, name in enumerate(("cat", "dog")):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                (folder / f"{number}.png").write_bytes(png(40 + number, 52, label * 50 + number))
    (tmp_path / "photos/train/dog/broken.jpg").write_bytes(b"\xff\xd8\xff")
    (train,) = re.findall(r"^#   (mpirun .*)$", (ROOT / "configs/images.toml").read_text(), re.M)
    said = shell(f"{train} --set run.epochs=2 --set data.image_size=[64,64] --set probe.max_val=4 --set probe.steps_per_trial=1 --json result.json")
    result = read_json(tmp_path / "result.json")
    assert result["validation_loss"] > 0 and 0 <= result["validation_accuracy"] <= 1
    assert "broken.jpg" in said and "it is skipped" in said, said
    assert read_json(tmp_path / "runs/images/classes.json") == ["cat", "dog"]
