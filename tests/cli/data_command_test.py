"""onebatch data: what it says of data whose counts, ranges and pictures are known otherwise."""
import collections
import gzip
import json
import math
import pathlib

import pytest

from image_folders import CONFIG, make_images
from program import ROOT, Scratch, read_json, settings, write_safetensors

DIGITS = 1500


def digits():
    """(pixels of 64 each, labels), from the format's definition."""
    def raw(name):
        (path,) = pathlib.Path(ROOT / "data/digits").glob(f"{name}*")
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()

    pixels, labels = raw("train-images-idx3-ubyte")[16:], raw("train-labels-idx1-ubyte")[8:]
    return [pixels[i : i + 64] for i in range(0, len(pixels), 64)], list(labels)


@pytest.fixture
def look(onebatch, scratch):
    def run(*arguments, code=0):
        file = scratch.path / "data.json"
        out = onebatch.run(1, "data", scratch.config, "--json", file, *arguments, code=code)
        return out, read_json(file) if code == 0 else None

    return run


FIELDS = {"samples": int, "looked_at": int, "columns": list, "num_classes": int, "classes": list, "lengths": (dict, type(None)), "ranges": list,
          "num_broken": int, "broken": list}  # fmt: skip


def test_the_document_has_the_fields_that_are_documented(look):
    _, document = look()
    assert set(document) == {"train", "validation", "reading", "ranks"}
    documented = (ROOT / "docs/documents.md").read_text().split("## Data")[1].split("\n## ")[0]
    for split in (document["train"], document["validation"]):
        assert {name: isinstance(split[name], kind) for name, kind in FIELDS.items()} == dict.fromkeys(FIELDS, True)
        assert set(split) == set(FIELDS)
        assert [name for name in split if f"`{name}`" not in documented] == []
    assert [one["threads"] for one in document["reading"]] == [1, 2, 4]
    assert all(one["samples_per_second"] > 0 for one in document["reading"])
    assert document["ranks"] is None


def test_counts_and_ranges_are_the_files(look):
    out, document = look()
    pixels, labels = digits()
    train = document["train"]
    assert (train["samples"], train["looked_at"], train["num_classes"]) == (DIGITS, DIGITS, 10)
    assert {one["index"]: one["samples"] for one in train["classes"]} == dict(collections.Counter(labels))
    (range_,) = train["ranges"]
    most = max(max(image) for image in pixels)
    assert range_["largest"] == 1.0 and range_["least"] == 0.0 and range_["not_finite"] == 0
    assert range_["mean"] == pytest.approx(sum(map(sum, pixels)) / len(pixels) / 64 / most, rel=1e-6)
    assert [(one["type"], one["shape"]) for one in train["columns"]] == [("float32", [1, 8, 8]), ("int64", [])]
    assert document["validation"]["samples"] == 297
    assert "training: 1500 samples" in out and "validation: 297 samples" in out


def test_some_samples_are_looked_at_where_that_is_asked(look):
    _, document = look("--samples", "100")
    assert document["train"]["looked_at"] == 100 and document["train"]["samples"] == DIGITS
    assert sum(one["samples"] for one in document["train"]["classes"]) == 100


def test_the_sheet_shows_the_first_images(look, scratch):
    image = pytest.importorskip("PIL.Image")
    look("--sheet", scratch.path / "sheet.png", *settings("data.sampling=sequential"))
    sheet = image.open(scratch.path / "sheet.png")
    pixels, _ = digits()
    shown = pixels[:64]
    most = max(max(one) for one in pixels)
    top = max(max(one) for one in shown) / most
    assert sheet.mode == "L" and sheet.size == (8 * 50 + 2, 8 * 50 + 2)  # 8 pixels six times, and gaps of 2
    for i, one in enumerate(shown):
        for place in range(64):
            found = sheet.getpixel((2 + i % 8 * 50 + place % 8 * 6 + 3, 2 + i // 8 * 50 + place // 8 * 6 + 3))
            assert abs(found - round(one[place] / most / top * 255)) <= 1


def test_augmented_images_are_shown(look, scratch):
    image = pytest.importorskip("PIL.Image")
    look("--sheet", scratch.path / "plain.png", *settings("data.sampling=sequential"))
    look("--sheet", scratch.path / "changed.png", *settings("data.sampling=sequential", "data.augment.crop_padding=2"))
    plain, changed = (image.open(scratch.path / f"{name}.png") for name in ("plain", "changed"))
    assert plain.size == changed.size and plain.tobytes() != changed.tobytes()


def test_values_that_are_not_finite_are_counted(onebatch, tmp_path):
    values = [math.nan, math.inf, -2.0, 6.0]
    write_safetensors(tmp_path / "d.safetensors", x=("F32", [2, 2], values), y=("I64", [2], [0, 1]))
    scratch = Scratch(tmp_path, f'[run]\nmax_steps = 1\n[batch]\nglobal_batch_size = 2\n[data]\nkind = "safetensors"\npath = "{tmp_path}/d.safetensors"\n[model]\nkind = "mlp"\n')
    onebatch.run(1, "data", scratch.config, "--json", tmp_path / "out.json")
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["train"]["ranges"] == [{"least": -2.0, "largest": 6.0, "mean": 2.0, "not_finite": 2}]
    assert document["validation"] is None


def test_padding_is_no_value(onebatch, tmp_path):
    lengths = [1, 30, 7, 2]
    offsets = [sum(lengths[:i]) for i in range(5)]
    write_safetensors(tmp_path / "d.safetensors", x=("F32", [40, 1], [5.0 + i / 40 for i in range(40)]), y=("I64", [4], [0, 1, 0, 1]), offsets=("I64", [5], offsets))
    scratch = Scratch(tmp_path, f'[run]\nmax_steps = 1\n[batch]\nglobal_batch_size = 2\n[data]\nkind = "safetensors"\npath = "{tmp_path}/d.safetensors"\noffsets = "offsets"\n[model]\nkind = "mlp"\n')
    onebatch.run(1, "data", scratch.config, "--json", tmp_path / "out.json")
    (ranges,) = read_json(tmp_path / "out.json")["train"]["ranges"]
    assert (ranges["least"], ranges["largest"], ranges["mean"]) == pytest.approx((5.0, 5.975, 5.4875), rel=1e-6)


@pytest.mark.parametrize("on_broken", ["stop", "skip"])
def test_broken_files_are_named_whatever_a_run_does_with_them(onebatch, tmp_path, on_broken):
    scratch = Scratch(tmp_path, CONFIG.replace("resize = 12", f'resize = 12\non_broken = "{on_broken}"'))
    scratch.runs.mkdir()  # which the path goes through
    make_images(tmp_path / "images")
    (tmp_path / "images/bee/3.png").write_bytes(b"")
    out = onebatch.run(1, "data", scratch.config)
    assert "1 of 30 samples cannot be read" in out
    assert "bee/3.png is empty\n" in out


def test_waiting_is_estimated_against_a_profile(look, scratch):
    profile = scratch.path / "profile.json"
    profile.write_text(json.dumps({"ranks": [{"device": "slow", "max_micro_batch": 300, "step_seconds": [[1, 10.0], [300, 3000.0]]}]}))
    out, document = look("--profile", profile)
    (rank,) = document["ranks"]
    assert rank["samples"] == 257 and rank["device"] == "slow" and rank["wait_seconds"] == 0.0 and "no wait" in out
    quickest = max(one["samples_per_second"] for one in document["reading"])
    assert rank["reading_seconds"] == pytest.approx(257 / quickest)
    profile.write_text(json.dumps({"ranks": [{"device": "quick", "max_micro_batch": 300, "step_seconds": [[1, 1e-12], [300, 2e-12]]}]}))
    out, document = look("--profile", profile)
    (rank,) = document["ranks"]
    assert rank["wait_seconds"] == pytest.approx(rank["reading_seconds"] - rank["step_seconds"]) and rank["wait_seconds"] > 0.0
    assert "waits" in out


@pytest.mark.parametrize("arguments, said", (
    (settings("data.path=/nonexistent"), "/nonexistent"),
    (settings("data.kind=synthetic", "data.shape=[7]") + ["--sheet", "/tmp/none.png"], "--sheet is for images"),
    (["--sheet", "/nonexistent/sheet.png"], "--sheet"),
    (["--profile", "/nonexistent/profile.json"], "/nonexistent/profile.json"),
    (settings("optimizer.lr=-1", "run.seed=x"), "optimizer.lr"),
))  # fmt: skip
def test_mistakes_end_with_2(look, arguments, said):
    out, _ = look(*arguments, code=2)
    assert said in out
