"""Image files against PIL and torchvision: what is decoded, resized, cropped and coloured, to the last bit."""
import io
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import zlib

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("torchvision")
from PIL import Image, ImageOps
from torchvision import datasets
from torchvision.transforms import InterpolationMode, RandomResizedCrop, autoaugment
from torchvision.transforms import functional as F

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build"


class Tool:
    """tests/oracle/image_tool.cpp, once for all questions."""

    def __init__(self, program):
        self.process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, *fields):
        self.process.stdin.write(("\t".join(str(field) for field in fields) + "\n").encode())
        self.process.stdin.flush()
        head = self.process.stdout.readline().decode().strip()
        assert head, f"the tool has died of {fields}"
        if head.startswith("error "):
            return head[6:]
        height, width, channels = map(int, head.split()[1:])
        pixels = np.frombuffer(self.process.stdout.read(height * width * channels), np.uint8)
        return pixels.reshape(height, width, channels)

    def words(self, *fields):
        answer = self.ask(*fields)
        return answer if isinstance(answer, str) else bytes(answer.ravel()).decode()


@pytest.fixture(scope="module")
def tool():
    one = Tool(os.environ.get("IMAGE_TOOL", BUILD / "tests/image_tool"))
    yield one
    one.process.stdin.close()
    assert one.process.wait(timeout=60) == 0


def picture(rng, height, width):
    """Smooth shapes with some noise, as photographs have."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = [np.sin(x / rng.uniform(3, 40) + rng.uniform(0, 6)) + np.cos(y / rng.uniform(3, 40) + rng.uniform(0, 6)) for _ in range(3)]
    values = np.stack(planes, -1) * 60 + 128 + rng.normal(0, 12, (height, width, 3))
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


def exif_of(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


def without_adobes_marker(image, quality):
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    whole = file.getvalue()
    begin = whole.index(b"\xff\xee")
    return whole[:begin] + whole[begin + 2 + int.from_bytes(whole[begin + 2 : begin + 4], "big") :]


def writers(rng):
    """Every kind of file that is to be read, by name."""
    some = int(rng.integers(20, 100))
    kinds = {"jpeg": lambda i, f: i.save(f, "JPEG", quality=some)}
    for subsampling in (0, 1, 2):
        kinds[f"jpeg_{subsampling}"] = lambda i, f, s=subsampling: i.save(f, "JPEG", quality=some, subsampling=s)
    kinds["jpeg_progressive"] = lambda i, f: i.save(f, "JPEG", quality=some, progressive=True)
    kinds["jpeg_restart"] = lambda i, f: i.save(f, "JPEG", quality=some, restart_marker_blocks=3)
    kinds["jpeg_grey"] = lambda i, f: i.convert("L").save(f, "JPEG", quality=some)
    kinds["jpeg_cmyk"] = lambda i, f: i.convert("CMYK").save(f, "JPEG", quality=some)
    kinds["jpeg_cmyk_unmarked"] = lambda i, f: f.write(without_adobes_marker(i.convert("CMYK"), some))
    for turn in range(1, 9):
        kinds[f"jpeg_turned_{turn}"] = lambda i, f, t=turn: i.save(f, "JPEG", quality=some, exif=exif_of(t))
    for mode in ("RGB", "L", "RGBA", "LA", "P", "1"):
        kinds[f"png_{mode}"] = lambda i, f, m=mode: with_alpha(i, m, rng).save(f, "PNG")
    kinds["png_clear_colour"] = lambda i, f: i.convert("P", palette=Image.Palette.ADAPTIVE).save(f, "PNG", transparency=3)
    for bits in (1, 2, 4):
        kinds[f"png_palette_{bits}"] = lambda i, f, b=bits: i.quantize(2**b).save(f, "PNG", bits=b)
    kinds["png_turned"] = lambda i, f: i.save(f, "PNG", exif=exif_of(6))
    kinds["png_rgb_16"] = lambda i, f: f.write(png_of_16_bits(i))
    kinds["webp"] = lambda i, f: i.save(f, "WEBP", quality=some)
    kinds["webp_lossless"] = lambda i, f: i.save(f, "WEBP", lossless=True)
    kinds["webp_alpha"] = lambda i, f: with_alpha(i, "RGBA", rng).save(f, "WEBP", lossless=True, exact=True)
    kinds["webp_turned"] = lambda i, f: i.save(f, "WEBP", lossless=True, exif=exif_of(8))
    return kinds


def with_alpha(image, mode, rng):
    made = image.convert(mode)
    if mode in ("RGBA", "LA"):
        made.putalpha(Image.fromarray(rng.integers(0, 256, (image.height, image.width)).astype(np.uint8)))
    return made


def png_of_16_bits(image):
    """PIL writes none in colour: upper bytes from the image, lower ones from its mirror."""
    upper = np.asarray(image).astype(np.uint16)
    values = (upper << 8 | upper[:, ::-1]).astype(">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in values)
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    head = struct.pack(">IIBBBBB", image.width, image.height, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def as_pil_reads(file):
    return ImageOps.exif_transpose(Image.open(file)).convert("RGB")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Some hundred files of all kinds and many sizes, with misleading names."""
    folder = tmp_path_factory.mktemp("images")
    made = []
    for number in range(16):
        rng = np.random.default_rng(number)
        for kind, write in writers(rng).items():
            image = picture(rng, int(rng.integers(1, 90)), int(rng.integers(1, 90)))
            file = folder / f"{number}-{kind}.jpg"
            with open(file, "wb") as out:
                write(image, out)
            made.append(file)
    return made


def furthest(ours, theirs):
    assert ours.shape == theirs.shape
    return int(np.abs(ours.astype(int) - theirs.astype(int)).max(initial=0))


def test_files_are_decoded_as_pil_does(tool, files):
    assert len(files) >= 500
    worst = {}
    for file in files:
        ours = tool.ask("decode", file)
        assert not isinstance(ours, str), f"{file.name}: {ours}"
        kind = file.stem.split("-")[1]
        worst[kind] = max(worst.get(kind, 0), furthest(ours, np.asarray(as_pil_reads(file))))
    print(f"{len(files)} files, furthest from PIL by kind: {worst}")
    assert max(worst.values()) <= 1, worst
    assert all(distance == 0 for kind, distance in worst.items() if kind.startswith("png") or kind == "webp_lossless"), worst


def test_grey_is_pils(tool, files):
    for file in files[::7]:
        assert furthest(tool.ask("grey", file)[..., 0], np.asarray(as_pil_reads(file).convert("L"))) <= 1


def test_sixteen_grey_bits_give_the_upper_eight(tool, tmp_path):
    values = np.random.default_rng(0).integers(0, 65536, (20, 30)).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    assert furthest(tool.ask("decode", tmp_path / "a.png"), np.repeat((values >> 8).astype(np.uint8)[..., None], 3, -1)) == 0


def test_middles_are_torchvisions(tool, files):
    worst = 0
    for file in files:
        image = as_pil_reads(file)
        if max(image.size) > 8 * min(image.size):
            continue
        wanted = F.center_crop(F.resize(image, 40), [33, 24])
        worst = max(worst, furthest(tool.ask("middle", file, 40, 33, 24), np.asarray(wanted)))
    print("furthest from torchvision's Resize and CenterCrop:", worst)
    assert worst <= 1


def test_drawn_parts_are_torchvisions(tool, files):
    worst = 0
    for number, file in enumerate(files):
        rng = random.Random(number)
        image = as_pil_reads(file)
        height, width = rng.randint(1, image.height), rng.randint(1, image.width)
        top, left = rng.randint(0, image.height - height), rng.randint(0, image.width - width)
        # So large that nothing is decoded at a part of its size.
        size = [rng.randint(height // 2 + 1, 64), rng.randint(width // 2 + 1, 64)]
        wanted = F.resized_crop(image, top, left, height, width, size)
        ours = tool.ask("part", file, top, left, height, width, *size)
        distance = furthest(ours, np.asarray(wanted))
        assert distance <= 1, f"{file.name}: [{top}, {left}, {height}, {width}] to {size} is {distance} off"
        worst = max(worst, distance)
    print("furthest from torchvision's resized_crop:", worst)


@pytest.mark.parametrize("denominator", [2, 4, 8])
def test_scaled_parts_are_pils_drafts(tool, tmp_path, denominator):
    worst = 0
    for number in range(20):
        rng = np.random.default_rng(number)
        file = tmp_path / f"{number}.jpg"
        picture(rng, int(rng.integers(200, 400)), int(rng.integers(200, 400))).save(file, quality=90, subsampling=int(rng.integers(0, 3)))
        image = Image.open(file)
        wanted = (image.height // denominator // 2 * 2, image.width // denominator // 2 * 2)
        if denominator < 8:
            wanted = (wanted[0] - 8, wanted[1] - 8)
        size, ours = image.size, tool.ask("part", file, 0, 0, image.height, image.width, *wanted)
        image.draft("RGB", (size[0] // denominator, size[1] // denominator))
        assert image.size == (math.ceil(size[0] / denominator), math.ceil(size[1] / denominator))
        box = (0, 0, size[0] / denominator, size[1] / denominator)
        theirs = image.resize((wanted[1], wanted[0]), Image.Resampling.BILINEAR, box=box)
        worst = max(worst, furthest(ours, np.asarray(theirs)))
    print(f"furthest from PIL's draft at 1/{denominator}: {worst}")
    assert worst <= 1


def test_drawn_boxes_have_torchvisions_distribution(tool):
    import torch

    for height, width in ((100, 130), (30, 300), (7, 9)):
        ours = np.array([line.split() for line in tool.words("boxes", height, width, 20000).splitlines()], float)
        torch.manual_seed(0)
        blank = torch.zeros(3, height, width)
        theirs = np.array([RandomResizedCrop.get_params(blank, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(20000)], float)
        for column in range(4):
            spread = max(theirs[:, column].std(), 1e-9)
            assert abs(ours[:, column].mean() - theirs[:, column].mean()) < 5 * spread / math.sqrt(10000), (height, width, column)
            assert abs(ours[:, column].std() - spread) < 0.05 * spread + 0.02, (height, width, column)
            assert {ours[:, column].min(), ours[:, column].max()} == {theirs[:, column].min(), theirs[:, column].max()} or height > 7


CHANGES = {"brightness": (F.adjust_brightness, (0.0, 0.3, 1.0, 1.7, 3.0)), "contrast": (F.adjust_contrast, (0.0, 0.4, 1.0, 1.6)),
           "saturation": (F.adjust_saturation, (0.0, 0.5, 1.0, 2.0)), "sharpness": (F.adjust_sharpness, (0.0, 0.5, 1.0, 2.0)),
           "hue": (F.adjust_hue, (-0.5, -0.1, 0.0, 0.05, 0.3, 0.5)), "mirror": (lambda image, _: F.hflip(image), (0,))}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_torchvisions(tool, files, name):
    change, numbers = CHANGES[name]
    for file in files[4::11]:
        image = Image.fromarray(tool.ask("decode", file))
        for number in numbers:
            ours = tool.ask("change", file, name, number)
            assert furthest(ours, np.asarray(change(image, number))) == 0, (file.name, number)


def operations(height, width):
    return autoaugment.RandAugment()._augmentation_space(31, (height, width))


@pytest.mark.parametrize("name", operations(10, 10))
def test_operations_are_torchvisions(tool, files, name):
    for file in files[3::17]:
        image = Image.fromarray(tool.ask("decode", file))
        magnitudes, has_sign = operations(image.height, image.width)[name]
        for bin_ in (0, 1, 9, 17, 30):
            for sign in (1, -1) if has_sign else (1,):
                magnitude = float(magnitudes[bin_].item()) * sign if magnitudes.ndim > 0 else 0.0
                wanted = autoaugment._apply_op(image, name, magnitude, InterpolationMode.NEAREST, None)
                ours = tool.ask("operate", file, name, bin_, sign)
                assert furthest(ours, np.asarray(wanted)) == 0, (file.name, image.size, bin_, sign)


@pytest.mark.parametrize("kind", ["mix", "cut"])
@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_shares_are_of_beta(tool, kind, alpha):
    rows = np.array([line.split() for line in tool.words("mixes", alpha, 20000, 1000, 1000, kind).splitlines()], float)
    partners, shares = rows[:, 0], rows[:, 1]
    assert abs(partners.mean() - 9999.5) < 5 * 20000 / math.sqrt(12 * 20000) and partners.max() <= 19999
    if kind == "mix":
        assert abs(shares.mean() - 0.5) < 0.01
        assert abs(shares.var() - 0.25 / (2 * alpha + 1)) < 0.005
    else:
        assert np.allclose(shares, 1 - rows[:, 4] * rows[:, 5] / 1e6)
        assert (rows[:, 2] + rows[:, 4] <= 1000).all() and (rows[:, 3] + rows[:, 5] <= 1000).all()


def test_folders_are_listed_as_torchvision_lists_them(tool, tmp_path):
    for name in ("b/2.jpg", "b/10.PNG", "b/a-c/x.webp", "b/a/z.jpeg", "b/a/notes.txt", "a b/ü.jpg", "Z/1.jpg", "a/1.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    theirs = [f"{label} {pathlib.Path(path).relative_to(tmp_path)}" for path, label in datasets.ImageFolder(tmp_path).samples]
    assert tool.words("list", tmp_path).splitlines() == theirs


def test_lists_are_read(tool, tmp_path):
    (tmp_path / "a.csv").write_text('label,path\r\ndog,"x, 1.jpg"\r\n"a ""cat""",y.jpg\n\nfox,z.jpg')
    assert tool.words("list", tmp_path / "a.csv") == '1 x, 1.jpg\n0 y.jpg\n2 z.jpg\n'
    (tmp_path / "b.csv").write_text("\ufeffpath,label\nx.jpg,10\ny.jpg,2\n")
    assert tool.words("list", tmp_path / "b.csv") == "10 x.jpg\n2 y.jpg\n"
    (tmp_path / "c.jsonl").write_text("\n".join(json.dumps({"path": p, "label": l}) for p, l in (("ü.jpg", "z"), ("y.jpg", "b"))) + "\n")
    assert tool.words("list", tmp_path / "c.jsonl") == "1 ü.jpg\n0 y.jpg\n"
    (tmp_path / "d.jsonl").write_text('{"path": "x.jpg", "label": 3}\n')
    assert tool.words("list", tmp_path / "d.jsonl") == "3 x.jpg\n"


@pytest.mark.parametrize("text, words", [("", "names no column"), ("path,label\n", "names no image"), ("path\nx", 'no column "label"'),
                                         ("path,label\nx\n", ":2: has 1 fields, the first line 2"), ('path,label\n"x,1\n', "never closed")])
def test_wrong_lists_are_named(tool, tmp_path, text, words):
    (tmp_path / "a.csv").write_text(text)
    assert words in tool.words("list", tmp_path / "a.csv")


def jpeg_bytes(**options):
    out = io.BytesIO()
    picture(np.random.default_rng(0), 64, 64).save(out, "JPEG", **options)
    return out.getvalue()


def png_bytes():
    out = io.BytesIO()
    picture(np.random.default_rng(0), 64, 64).save(out, "PNG")
    return out.getvalue()


def webp_bytes():
    out = io.BytesIO()
    picture(np.random.default_rng(0), 64, 64).save(out, "WEBP")
    return out.getvalue()


def claiming(png, height, width):
    head = struct.pack(">II", width, height) + png[24:29]
    return png[:16] + head + struct.pack(">I", zlib.crc32(b"IHDR" + head)) + png[33:]


BROKEN = {
    "empty": (b"", "is empty"), "text": (b"hello there", "is no JPEG, PNG or WebP"), "gif": (b"GIF89a...", "is a GIF"),
    "page": (b"<!DOCTYPE html>", "is a web page"), "cut_jpeg": (jpeg_bytes()[:-700], "is cut off"),
    "cut_progressive": (jpeg_bytes(progressive=True)[:-500], "is cut off"), "cut_png": (png_bytes()[:-3000], "is cut off"),
    "cut_webp": (webp_bytes()[:-200], "is cut off"), "head_alone": (jpeg_bytes()[:10], "is no JPEG that can be read"),
    "enormous": (claiming(png_bytes(), 2**30, 2**30), "are read at most"), "hollow": (claiming(png_bytes(), 11000, 11000), "cannot hold"),
    "wrong_sum": (png_bytes()[:60] + b"\0" + png_bytes()[61:], "is no PNG that can be read")}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_named(tool, tmp_path, name):
    content, words = BROKEN[name]
    (tmp_path / "x.jpg").write_bytes(content)
    assert words in tool.ask("decode", tmp_path / "x.jpg")


def test_animations_are_named(tool, tmp_path):
    frames = [picture(np.random.default_rng(i), 20, 20) for i in range(3)]
    frames[0].save(tmp_path / "x.webp", save_all=True, append_images=frames[1:])
    assert "is an animation" in tool.ask("decode", tmp_path / "x.webp")


def test_mutated_files_are_read_or_named(tool, files, tmp_path):
    """1000 of them: whatever they hold the reader lives, and what it refuses it says."""
    rng = random.Random(5)
    read = 0
    for number in range(1000):
        content = bytearray(rng.choice(files).read_bytes())
        for _ in range(rng.randint(1, 8)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        if rng.random() < 0.3:
            del content[rng.randrange(len(content)) :]
        (tmp_path / "x").write_bytes(content)
        answer = tool.ask("part", tmp_path / "x", 0, 0, 1, 1, 3, 3)
        read += not isinstance(answer, str)
        assert not isinstance(answer, str) or answer.strip()
    print(f"{read} of 1000 could be read all the same")
