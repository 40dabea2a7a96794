"""Shards of tar files, written by Python's tarfile, against the arrays that went in."""
import io
import json
import random
import subprocess
import tarfile

import numpy as np
import pytest

torch = pytest.importorskip("torch")
load_file = pytest.importorskip("safetensors.torch").load_file
CONFIG = """
[run]
max_steps = 4
[batch]
global_batch_size = 12
[data]
kind = "tar"
path = "{path}"
{data}
[model]
kind = "mlp"
"""
LABELLED = 'inputs = ["npy"]\ntarget = "cls"'
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


@pytest.fixture
def show(request, tmp_path):
    """What the program reads: tensors by name, and what the data say of themselves."""

    def run(path, *samples, data=LABELLED, code=0):
        config = tmp_path / "show.toml"
        config.write_text(CONFIG.format(path=path, data=data))
        program = request.config.getoption("--show-samples")
        done = subprocess.run([program, config, tmp_path / "out", "-1", *map(str, samples)], capture_output=True, text=True, timeout=100)
        assert done.returncode == code, done.stdout + done.stderr
        return (load_file(tmp_path / "out"), json.loads(done.stdout)) if code == 0 else done.stdout

    return run


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def write(path, members, form=tarfile.USTAR_FORMAT):
    """name -> bytes; None: a folder."""
    with tarfile.open(path, "w", format=form) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content or b"")
            info.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            tar.addfile(info, io.BytesIO(content or b""))


def samples_of(arrays, labels, first=0, folder="train/"):
    return [member for i, (array, label) in enumerate(zip(arrays, labels, strict=True))
            for member in ((f"{folder}{first + i:06}.npy", npy(array)), (f"{folder}{first + i:06}.cls", f"{label}\n".encode()))]  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
def test_samples_are_what_was_written(show, tmp_path, form):
    rng = np.random.default_rng(1)
    arrays, labels = rng.normal(size=(9, 4, 3)).astype(np.float32), rng.integers(0, 5, 9)
    folder = tmp_path / "shards"
    folder.mkdir()
    # Long names and names beyond ASCII need an extended header; folders, lone files and other endings are no samples' tensors.
    deep = "train/" + ("" if form == "ustar" else "ü" * 60 + "/" + "d" * 90 + "/")
    write(folder / "a.tar", [("train/", None), ("README", b"hello"), *samples_of(arrays[:4], labels[:4], folder=deep)], FORMATS[form])
    write(folder / "b.tar", [*samples_of(arrays[4:], labels[4:], 4), ("train/000008.json", b"{}"), (".hidden.npy", b"")], FORMATS[form])
    got, said = show(folder, *range(9))
    assert said["size"] == 9 and said["shape"] == [4, 3] and said["classes"] == labels.max() + 1
    assert labels[said["labels"][1]] == labels.min() and labels[said["labels"][3]] == labels.max()
    assert np.array_equal(got["input0"].numpy(), arrays) and np.array_equal(got["target"].numpy(), labels)
    got, _ = show(folder, 7, 0, 7)
    assert np.array_equal(got["input0"].numpy(), arrays[[7, 0, 7]])


@pytest.mark.parametrize("dtype", (np.uint8, np.int16, np.int32, np.int64, np.float16, np.float64, bool))
def test_types_and_endings_with_dots(show, tmp_path, dtype):
    a = np.arange(6).reshape(2, 3).astype(dtype)
    b = np.array(7.5)
    write(tmp_path / "a.tar", [("x.left.npy", npy(a)), ("x.right.npy", npy(b))])
    got, said = show(tmp_path / "a.tar", 0, data='inputs = ["right.npy", "left.npy"]\ntarget = ""')
    assert got["input1"].is_floating_point() or got["input1"].dtype == (torch.bool if dtype is bool else torch.int64)
    assert np.array_equal(got["input1"][0].numpy(), a) and got["input0"].tolist() == [7.5] and said["shape"] == []


def test_numbers_in_json_may_be_whole_by_chance(show, tmp_path):
    documents = [{"x": x, "y": y} for x, y in (([0.5, 1.5], 1), ([1, 2], 2.5), ([2.5, 3], 3))]
    write(tmp_path / "a.tar", [(f"{i}.json", json.dumps(document).encode()) for i, document in enumerate(documents)])
    read, about = show(tmp_path / "a.tar", 0, 1, 2, data='inputs = ["json:x"]\ntarget = "json:y"')
    names = sorted(read)
    values = {tuple(read[name].flatten().tolist()) for name in names}
    assert values == {(0.5, 1.5, 1.0, 2.0, 2.5, 3.0), (1.0, 2.5, 3.0)}, (read, about)


def test_mistakes_are_named(show, tmp_path):
    path, zeros = tmp_path / "a.tar", npy(np.zeros(3))
    for members, words in (
        ([("a.npy", zeros)], "a.tar holds no a.cls beside the others of that name"),
        ([("a.npy", zeros), ("a.cls", b"1"), ("a.cls", b"1")], "holds a.cls twice"),
        ([("a.npy", zeros), ("a.cls", b"cat")], 'the .cls of sample 0, at byte 1536, holds "cat", which is no whole number'),
        ([("a.npy", b"abc"), ("a.cls", b"1")], "the .npy of sample 0, at byte 512, is no .npy file that can be read"),
        ([("a.npy", npy(np.zeros(3, ">f4"))), ("a.cls", b"1")], "its numbers are '>f4'"),
        ([("a.npy", npy(np.zeros((3, 2)).T)), ("a.cls", b"1")], "Fortran's order"),
        ([("a.npy", zeros), ("a.cls", b"1"), ("b.npy", npy(np.zeros(4))), ("b.cls", b"1")], "the .npy of sample 1 is Double [4], and that of sample 0 Double [3]"),
        ([("README", b"")], "a.tar holds no sample"),
    ):
        write(path, members)
        said = show(path, *range(len(members) // 2), code=2)
        assert words in said, said
    assert 'write "npy" (a NumPy array), "cls"' in show(path, 0, data='inputs = ["txt"]\ntarget = "cls"', code=2)
    write(path, samples_of(np.zeros((2, 3)), [0, 1]))
    whole = path.read_bytes()
    path.write_bytes(whole[:4096])  # its members, and no empty block
    assert "not a whole tar file" in show(path, 0, code=2)


def test_a_thousand_damaged_files_are_read_or_refused(request, tmp_path):
    """In one process, which takes no more memory than the files justify."""
    rng = np.random.default_rng(2)
    write(tmp_path / "whole.tar", samples_of(rng.normal(size=(3, 5)), [0, 1, 2], folder="f" * 120 + "/"), tarfile.PAX_FORMAT)
    whole = (tmp_path / "whole.tar").read_bytes().rstrip(b"\0") + bytes(1024)
    choose = random.Random(7)
    paths = []
    for i in range(1000):
        damaged = bytearray(whole)
        if i % 5 == 0:
            del damaged[choose.randrange(len(damaged)) :]
        else:
            for _ in range(choose.choice((1, 1, 2, 8))):
                block = choose.randrange(len(damaged) // 512) * 512
                damaged[block + choose.randrange(512 if i % 2 else 160)] = choose.choice((0, 0x30, 0x37, 0x80, 0xFF, choose.randrange(256)))
        if i % 3 == 0:  # with checksums that hold, as who means harm would write them
            for block in range(0, len(damaged) - 511, 512):
                if damaged[block + 257 : block + 262] == b"ustar":
                    damaged[block + 148 : block + 156] = b" " * 8
                    damaged[block + 148 : block + 156] = b"%06o\0 " % sum(damaged[block : block + 512])
        paths.append(tmp_path / f"{i}.tar")
        paths[-1].write_bytes(damaged)
    config = tmp_path / "show.toml"
    config.write_text(CONFIG.format(path="x", data=LABELLED))
    done = subprocess.run([request.config.getoption("--show-samples"), config, "--each", *paths], capture_output=True, text=True, errors="replace", timeout=200)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    refused = [line for line in lines if line.startswith("refused")]
    assert lines[-1].startswith("own") and len(refused) > 300 and all(".tar" in line for line in refused), lines[:5]
    print(f"{len(refused)} refused, {sum(line == 'read' for line in lines)} read; {lines[-1]}")
    assert int(lines[-1].split()[1]) < 64 * 1024
