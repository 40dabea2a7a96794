"""Shards that commands give: they train as the same shards in files do, are read once on a node and leave nothing; what fails is named on every rank."""
import io
import tarfile

import pytest

from image_folders import CONFIG, png
from program import Scratch, read_safetensors, settings

SHARDED = CONFIG.replace('kind = "image_folder"', 'kind = "tar"\ninputs = ["png"]\ntarget = "cls"').replace('path = "{runs}/../images"\n', "")


class Shards:
    def __init__(self, onebatch, path):
        self.onebatch, self.path, self.scratch = onebatch, path, Scratch(path, SHARDED)
        self.temporary = path / "tmp"
        self.temporary.mkdir()
        for part in range(2):
            with tarfile.open(path / f"{part}.tar", "w") as tar:
                for number in range(15):
                    for ending, content in (("png", png(12 + number, 20, number)), ("cls", str(number % 3).encode())):
                        info = tarfile.TarInfo(f"{part}{number}.{ending}")
                        info.size = len(content)
                        tar.addfile(info, io.BytesIO(content))

    def train(self, ranks, name, files, *changes, code=0):
        listed = ", ".join(f"'''{file}'''" for file in files)
        pairs = settings(f"run.name='{name}'", f"data.files=[{listed}]", "batch.micro_batch_size=2", 'batch.replan="never"', *changes)
        return self.onebatch.run(ranks, "train", self.scratch.config, *pairs, code=code, environment={"TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1"})

    def weights(self, name):
        return read_safetensors(self.scratch.runs / name / "checkpoints/latest/model.safetensors")

    def left(self):
        """Of what commands gave."""
        return [file.name for folder in self.temporary.glob("onebatch-spool-*") for file in folder.iterdir()]


@pytest.fixture
def shards(onebatch, tmp_path):
    return Shards(onebatch, tmp_path)


@pytest.mark.parametrize("ranks", [1, 3])
def test_what_commands_give_trains_as_files_do(shards, ranks):
    path, count = shards.path, shards.path / "count"
    shards.train(1, "files", [path / "0.tar", path / "1.tar"])
    said = shards.train(ranks, "pipes", [f"pipe:sh -c 'echo x >> {count}; cat {path}/0.tar'", f'pipe:cat "{path}/1.tar"'])
    expected, found = shards.weights("files"), shards.weights("pipes")
    assert all(abs(a - b) < 1e-13 for name in expected for a, b in zip(found[name], expected[name], strict=True))
    assert count.read_text() == "x\n", "it is run once, whatever the ranks"
    assert shards.left() == []
    assert said.count("until the run ends") == 2 and str(shards.temporary) in said, said


@pytest.mark.parametrize("command, words", [
    ("pipe:sh -c 'echo no such host >&2; exit 22'", "failed with exit code 22"),
    ("pipe:no-such-program", "pipe:no-such-program cannot be started"),
    ("pipe:true", "pipe:true gave nothing"),
    ("pipe:echo hello", "is not a whole tar file"),
    ("pipe:cat 'a", "does not end"),
])  # fmt: skip
@pytest.mark.parametrize("ranks", [1, 2])
def test_what_fails_is_named(shards, ranks, command, words):
    said = shards.train(ranks, "failing", [command], code=2)
    assert words in said and command in said, said
    assert shards.left() == []


def test_the_local_disk_is_bounded(shards):
    said = shards.train(1, "bounded", ["pipe:head -c 3000000 /dev/zero"], "data.spool_mb=2", code=2)
    assert "gives more than is left of data.spool_mb" in said, said
    assert shards.left() == []


TOKENS = """
[run]
max_steps = 1
output_dir = "{runs}"
[batch]
global_batch_size = 2
[data]
kind = "tokens"
path = "pipe:echo 123456"
block_size = 2
[model]
kind = "mlp"
"""


def test_other_kinds_take_no_commands(onebatch, tmp_path):
    said = onebatch.run(1, "train", Scratch(tmp_path, TOKENS).config, code=2)
    assert 'pipe:echo 123456: what a command gives is read as shards alone, by data.kind = "tar"' in said, said


def test_ranks_wait_for_a_slow_command_longer_than_for_each_other(shards):
    path = shards.path
    shards.train(2, "slow", [f"pipe:sh -c 'sleep 7; cat {path}/0.tar'"], "comm.timeout_seconds=4")
