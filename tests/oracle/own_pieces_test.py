"""Tensors in several safetensors files, 8-bit images and sequences without padding, against PyTorch's and torchvision's."""
import json
import pathlib
import random
import struct
import subprocess

import pytest

torch = pytest.importorskip("torch")
tensors = pytest.importorskip("safetensors.torch")
from oracle.common import configuration  # noqa: E402

CONFIG = configuration("""
[run]
max_steps = 4
[batch]
global_batch_size = 12
[data]
path = "{path}"
{data}
[optimizer]
lr = 0.5
""")
IMAGES = 'mean = [0.2, 0.4, 0.6]\nstd = [0.5, 0.25, 2.0]'
PACKED = 'offsets = "offsets"'


def generator(seed):
    return torch.Generator().manual_seed(seed)


def images(count, seed):
    return torch.randint(0, 256, (count, 3, 9, 7), dtype=torch.uint8, generator=generator(seed))


def labels(count, seed, classes=5):
    return torch.randint(0, classes, (count,), generator=generator(seed))


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "pieces"
    path.mkdir()
    return path


@pytest.fixture
def show(request, tmp_path):
    """What the program reads: tensors by name, and what the data say of themselves."""

    def run(path, *samples, data="", epoch=-1, code=0, more=""):
        config = tmp_path / "show.toml"
        config.write_text(CONFIG.format(folder=tmp_path, path=path, data=data) + more)
        program = request.config.getoption("--show-samples")
        done = subprocess.run([program, config, tmp_path / "out", str(epoch), *map(str, samples)], capture_output=True, text=True, timeout=100)
        assert done.returncode == code, done.stdout + done.stderr
        return (tensors.load_file(tmp_path / "out"), json.loads(done.stdout)) if code == 0 else done.stdout

    return run


def save(path, **columns):
    tensors.save_file(columns, path)


def normalised(pixels, mean=(0.2, 0.4, 0.6), std=(0.5, 0.25, 2.0)):
    channels = [torch.tensor(values).view(-1, 1, 1) for values in (mean, std)]
    return (pixels.float() / 255 - channels[0]) / channels[1]


def test_a_folder_is_its_files_one_after_another(show, folder):
    x = [torch.randn(count, 4, generator=generator(count)) for count in (3, 5, 1)]
    y = [labels(count, count) for count in (3, 5, 1)]
    for i in range(3):
        save(folder / f"{i}.safetensors", x=x[i], y=y[i], other=torch.zeros(2 + i))
    order = [8, 2, 3, 0, 7, 3]
    got, said = show(folder, *order)
    assert said["size"] == 9 and said["classes"] == torch.cat(y).max() + 1
    assert torch.equal(got["input0"], torch.cat(x)[order]) and torch.equal(got["target"], torch.cat(y)[order])
    got, _ = show(folder, *range(4), data='files = ["2.safetensors", "0*"]')
    assert torch.equal(got["input0"], torch.cat([x[2], x[0]]))
    got, _ = show(f"{folder}/[12].safetensors", *range(6))
    assert torch.equal(got["input0"], torch.cat([x[1], x[2]]))


def test_large_columns_that_are_read_where_they_lie_are_the_same(show, folder):
    x = [torch.randn(count, 700, generator=generator(count)) for count in (3000, 2500)]
    for i in range(2):
        save(folder / f"{i}.safetensors", x=x[i], y=labels(len(x[i]), i))
    order = random.Random(1).sample(range(5500), 300)
    got, said = show(folder, *order)
    assert torch.equal(got["input0"], torch.cat(x)[order])
    assert said["opened_kib"] < 8 * 1024, "15 MB of x are not copied"


def test_unlike_files_are_named(show, folder):
    save(folder / "0.safetensors", x=torch.zeros(3, 4), y=labels(3, 1))
    for wrong, words in (
        ({"x": torch.zeros(3, 5), "y": labels(3, 1)}, ["1.safetensors: data.inputs \"x\" is F32 [3, 5]", "all files must hold the same tensors"]),
        ({"x": torch.zeros(3, 4).half(), "y": labels(3, 1)}, ["is F16 [3, 4]"]),
        ({"x": torch.zeros(3, 4), "y": labels(2, 1)}, ["1.safetensors: data.target \"y\" has 2 samples", "\"x\" has 3"]),
        ({"x": torch.zeros(3, 4)}, ['1.safetensors holds no tensor "y": write one of x']),
    ):
        save(folder / "1.safetensors", **wrong)
        said = show(folder, 0, code=2)
        assert [word for word in words if word not in said] == [], said


def test_8_bit_images_are_scaled_as_torchvision_scales_them(show, folder):
    x = images(20, 1)
    save(folder / "a.safetensors", x=x[:12], y=labels(12, 1))
    save(folder / "b.safetensors", x=x[12:], y=labels(8, 2))
    got, said = show(folder, *range(20), data=IMAGES)
    assert said["pixels"] and got["input0"].dtype == torch.float32
    assert (got["input0"] - normalised(x)).abs().max() < 1e-6
    whole, said = show(folder, 3)
    assert not said["pixels"] and torch.equal(whole["input0"], x[3:4].long())
    one, _ = show(folder, 3, data="mean = [0.5]\nstd = [0.25]")
    assert (one["input0"] - normalised(x[3:4], (0.5,), (0.25,))).abs().max() < 1e-6
    assert "have 2 numbers, but images have 3 channels" in show(folder, 0, data="mean = [0.5, 1.0]\nstd = [1.0, 1.0]", code=2)
    assert "is for images in 8 bits" in show(folder, 0, data='inputs = ["y"]\n' + IMAGES, code=2)


def test_8_bit_images_are_shifted_with_black_and_mirrored(show, folder):
    """Each is one of the crops of the padded image, of it or of its mirror image, and many kinds of them are there."""
    x = images(40, 3)
    save(folder / "a.safetensors", x=x, y=labels(40, 1))
    got, said = show(folder, *range(40), data=IMAGES, epoch=2, more="\n[data.augment]\ncrop_padding = 2\nhorizontal_flip = true\n")
    assert said["pixels"]
    seen = set()
    for sample in range(40):
        padded = normalised(torch.nn.functional.pad(x[sample], (2, 2, 2, 2)))
        crops = {(i, j): padded[:, i : i + 9, j : j + 7] for i in range(5) for j in range(5)}
        found = [(place, flip) for place, crop in crops.items() for flip, image in ((0, crop), (1, crop.flip(2))) if (image - got["input0"][sample]).abs().max() < 1e-6]
        assert len(found) == 1, (sample, found)
        seen.add(found[0])
    assert len(seen) > 20


def sequences(counts, seed, width=None):
    g = generator(seed)
    return [torch.randint(1, 30, (n,), generator=g) if width is None else torch.randn(n, width, generator=g) for n in counts]


def packed(path, x, y, **more):
    offsets = torch.tensor([0, *torch.tensor([len(s) for s in x]).cumsum(0).tolist()])
    save(path, x=torch.cat(x), y=torch.cat(y) if y[0].dim() else torch.stack(y), offsets=offsets, **more)


def padded(rows, value):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)


def test_sequences_without_padding_are_padded_to_the_longest_of_the_batch(show, folder):
    counts = ((4, 1, 7), (2, 9, 3, 3))
    x = [sequences(c, i) for i, c in enumerate(counts)]
    y = [[s % 6 for s in part] for part in x]
    for i in range(2):
        packed(folder / f"{i}.safetensors", x[i], y[i], mask=torch.ones(sum(counts[i]), dtype=torch.bool), once=torch.arange(float(len(counts[i]))))
    all_x, all_y = x[0] + x[1], y[0] + y[1]
    for order in ([0, 3, 1], [4, 2], list(range(7))):
        got, said = show(folder, *order, data=f'{PACKED}\ninputs = ["x", "mask", "once"]')
        assert said["size"] == 7 and said["lengths"] == [4, 1, 7, 2, 9, 3, 3] and said["shape"] == [9]
        assert torch.equal(got["input0"], padded([all_x[i] for i in order], 0))
        assert torch.equal(got["input1"], padded([torch.ones(len(all_x[i]), dtype=torch.bool) for i in order], False))
        assert torch.equal(got["input2"], torch.cat([torch.arange(3.0), torch.arange(4.0)])[order])
        assert torch.equal(got["target"], padded([all_y[i] for i in order], -100))
    largest = max(range(7), key=lambda i: all_y[i].max())
    assert said["labels"][2] == all_y[largest].max() and said["labels"][2] in all_y[said["labels"][3]]


def test_numbers_for_padding_have_no_weight_and_labels_by_sample_none_at_all(show, folder):
    x = sequences((3, 1, 5), 4, width=2)
    packed(folder / "a.safetensors", x, [s[:, 0].double() for s in x])
    got, _ = show(folder, 1, 0, data=PACKED)
    assert torch.equal(got["input0"], padded([x[1], x[0]], 0)) and torch.equal(got["weights"], torch.tensor([[1.0, 0, 0], [1, 1, 1]]))
    packed(folder / "a.safetensors", x, list(torch.tensor([2, 0, 1])))
    got, said = show(folder, 1, 0, data=PACKED)
    assert torch.equal(got["target"], torch.tensor([0, 2])) and "weights" not in got and said["classes"] == 3


def test_offsets_that_are_none_are_named(show, folder):
    x = torch.zeros(6, dtype=torch.long)
    for offsets, words in (
        ([1, 3, 6], "begins with 1, not with 0"),
        ([0, 3, 3, 6], "goes from 3 to 3: sequence 1 would hold nothing"),
        ([0, 4, 2, 6], "goes from 4 to 2"),
        ([0], "holds no sequence"),
        ([0, 3, 7], "has 6 rows, but data.offsets tells of 2 sequences with 7 values"),
        ([0, 2**62], "sequences with 4611686018427387904 values"),
    ):
        save(folder / "a.safetensors", x=x, y=x.clone(), offsets=torch.tensor(offsets))
        said = show(folder, 0, data=PACKED, code=2)
        assert words in said and "a.safetensors" in said, said


def test_the_start_looks_through_labels_alone(show, folder):
    """A file of 20 GB, which is a hole but for its labels."""
    path, samples, row = folder / "large.safetensors", 100_000, 3 * 260 * 260
    header = {"y": {"dtype": "I64", "shape": [samples], "data_offsets": [0, 8 * samples]},
              "x": {"dtype": "U8", "shape": [samples, 3, 260, 260], "data_offsets": [8 * samples, (8 + row) * samples]}}  # fmt: skip
    text = json.dumps(header).encode()
    y = labels(samples, 1, 1000)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + y.numpy().tobytes())
        file.truncate(8 + len(text) + (8 + row) * samples)
        file.seek(-row, 2)
        file.write(bytes([255]) * row)
    got, said = show(path, samples - 1, 5, data=IMAGES)
    print(f"{path.stat().st_size / 1e9:.1f} GB: opened in {said['seconds']} s, {said['opened_kib']} KiB; with two images {said['read_kib']} KiB")
    assert (got["input0"] - normalised(torch.tensor([255, 0]).view(2, 1, 1, 1).expand(2, 3, 260, 260))).abs().max() < 1e-5
    assert got["target"].tolist() == y[[samples - 1, 5]].tolist() and said["classes"] == 1000
    assert said["seconds"] <= 1.0 and said["read_kib"] <= 50 * 1024


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = torch.nn.Embedding(30, 8), torch.nn.Linear(8, 6)

    def forward(self, x):
        return self.head(torch.tanh(self.words(x)))


def test_separate_validation_data_may_have_other_lengths(onebatch, folder, tmp_path):
    for name, longest in (("train", 9), ("validation", 5)):
        x = sequences([1 + i % longest for i in range(30)], longest)
        packed(tmp_path / f"{name}.safetensors", x, [s % 6 for s in x])
    torch.jit.trace(Tagger().double(), torch.zeros(2, 3, dtype=torch.long)).save(tmp_path / "model.pt")
    config = pathlib.Path(tmp_path / "run.toml")
    config.write_text(CONFIG.format(folder=tmp_path, path=tmp_path / "train.safetensors", data=PACKED + f'\n[data.validation]\npath = "{tmp_path}/validation.safetensors"'))
    assert "validation after step 4: loss" in onebatch.run(2, "train", config, "--set", "run.device=cpu")


@pytest.mark.parametrize("ranks", (1, 3))
def test_packed_sequences_in_pieces_are_trained_as_pytorch_trains_them(onebatch, folder, tmp_path, ranks):
    choose = random.Random(3)
    x = sequences([choose.randint(1, 12) for _ in range(40)], 5)
    y = [s % 6 for s in x]
    packed(folder / "0.safetensors", x[:25], y[:25])
    packed(folder / "1.safetensors", x[25:], y[25:])
    torch.manual_seed(2)
    model = Tagger().double()
    torch.jit.trace(model, torch.zeros(2, 3, dtype=torch.long)).save(tmp_path / "model.pt")
    config = pathlib.Path(tmp_path / "run.toml")
    config.write_text(CONFIG.format(folder=tmp_path, path=folder, data=PACKED))
    onebatch.run(ranks, "train", config, "--set", "run.device=cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines():
        batch = json.loads(line)["indices"]
        optimizer.zero_grad()
        logits = model(padded([x[i] for i in batch], 0))
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), padded([y[i] for i in batch], -100).flatten()).backward()
        optimizer.step()
    ours = tensors.load_file(tmp_path / "run" / "checkpoints" / "latest" / "model.safetensors")
    worst = max((ours[name] - value).abs().max().item() for name, value in model.state_dict().items())
    print(f"{ranks} ranks: {worst:.1e} from PyTorch's weights")
    assert worst < 1e-12


def test_a_thousand_damaged_files_are_read_or_refused(request, folder, tmp_path):
    """In one process, which takes no more memory than the files justify."""
    x = sequences((3, 1, 5, 2), 6)
    packed(folder / "0.safetensors", x, [s % 6 for s in x])
    whole = (folder / "0.safetensors").read_bytes()
    choose = random.Random(7)
    config = tmp_path / "show.toml"
    config.write_text(CONFIG.format(folder=tmp_path, path=folder, data=PACKED))
    paths = []
    for i in range(1000):
        damaged = bytearray(whole)
        if i % 5 == 0:
            del damaged[choose.randrange(len(damaged)) :]
        else:
            for _ in range(choose.choice((1, 1, 2, 8))):
                damaged[choose.randrange(len(damaged) if i % 2 else len(damaged) - len(x) * 8)] = choose.choice((0, 0x30, 0x39, 0xFF, choose.randrange(256)))
        paths.append(tmp_path / f"{i}.safetensors")
        paths[-1].write_bytes(damaged)
    done = subprocess.run([request.config.getoption("--show-samples"), config, "--each", *paths], capture_output=True, text=True, errors="replace", timeout=200)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    refused = [line for line in lines if line.startswith("refused")]
    assert len(lines) == 1001 and len(refused) > 300 and all(".safetensors" in line for line in refused), lines[:5]
    print(f"{len(refused)} refused, {1000 - len(refused)} read; {lines[-1]}")
    assert int(lines[-1].split()[1]) < 64 * 1024
