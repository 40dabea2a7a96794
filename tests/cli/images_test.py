"""Image files, from the folder to the trained weights."""
import csv
import io
import json
import tarfile

import pytest

from image_folders import CONFIG, MIXED, colour, make_images, png
from program import DIGITS_MLP, Scratch, read_json, read_json_lines, read_safetensors, relative_l2, settings, write_safetensors

SKIPPING = CONFIG.replace("resize = 12", 'resize = 12\non_broken = "skip"')


def planes(height, width, seed):
    """What the model is to be given of it."""
    mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    return [(colour(x, y, c, seed) / 255 - mean[c]) / deviation[c] for c in range(3) for y in range(height) for x in range(width)]


def prepared(path, text, **options):
    path.mkdir(exist_ok=True)
    scratch = Scratch(path, text)
    make_images(path / "images", **options)
    return scratch


def weights(scratch):
    (file,) = sorted(scratch.runs.glob("run/checkpoints/step-*6/model.safetensors"))
    return read_safetensors(file)


@pytest.mark.parametrize("text", [CONFIG, MIXED], ids=["changed", "mixed"])
def test_ranks_and_parts_change_nothing(onebatch, tmp_path, text):
    one, two, parts = (prepared(tmp_path / name, text) for name in ("one", "two", "parts"))
    onebatch.run(1, "train", one.config)
    onebatch.run(2, "train", two.config)
    onebatch.run(1, "train", parts.config, *settings("batch.micro_batch_size=3"))
    assert relative_l2(weights(two), weights(one)) < 1e-13
    assert relative_l2(weights(parts), weights(one)) < 1e-13
    assert json.loads((one.runs / "run/classes.json").read_text()) == ["ant", "bee", "cow"]


def test_classes_of_other_names_are_not_counted_as_those_of_the_run(onebatch, tmp_path):
    scratch = prepared(tmp_path / "run", CONFIG)
    keys = settings("data.validation.fraction=0.4")
    onebatch.run(1, "train", scratch.config, *keys)
    checkpoint = max(scratch.runs.glob("run/checkpoints/step-*"))
    command = ("eval", scratch.config, "--checkpoint", checkpoint, *keys)
    onebatch.run(1, *command)
    (tmp_path / "run/images/bee").rename(tmp_path / "run/images/wasp")
    said = onebatch.run(2, *command, code=2)
    assert 'class 1 of this data is "cow", and was "bee" in training' in said


def test_names_of_classes_may_hold_anything(onebatch, tmp_path):
    """They are columns of validation.csv: a reader of RFC 4180 finds each again, also after a run has gone on."""
    names = ['a,b "c"', "d\n4,5", "e"]
    scratch = prepared(tmp_path / "run", CONFIG, classes=names)
    keys = settings("data.validation.fraction=0.4", 'run.metrics=["f1_per_class"]', "run.validate_every_steps=2")
    onebatch.run(2, "train", scratch.config, *keys, "--set", "run.max_steps=4")
    onebatch.run(2, "train", scratch.config, *keys, "--set", "run.max_steps=6", "--resume")
    with open(scratch.runs / "run/validation.csv", newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    lines = read_json_lines(scratch.runs / "run/validation.jsonl")
    assert [int(row["step"]) for row in rows] == [line["step"] for line in lines] and len(rows) >= 3
    columns = [column for column in rows[0] if column.startswith("f1_class_")]
    assert columns == [f"f1_class_{name}" for name in names]
    for row, line in zip(rows, lines):
        assert [float(row[column]) for column in columns] == [line[column] for column in columns]


def test_a_skipped_file_is_a_sample_of_weight_zero(onebatch, tmp_path):
    """The same pixels as tensors, normalised here, with that sample's weight 0: the same weights."""
    text = SKIPPING.replace("[8, 10]", "[10, 10]").replace("resize = 12", "resize = 10")
    text = text[: text.index("[data.augment]")] + text[text.index("[model]") :]
    files = prepared(tmp_path / "files", text, size=lambda number: (10, 10))
    (tmp_path / "files/images/bee/3.png").write_bytes(b"")
    said = onebatch.run(2, "train", files.config)
    assert "bee/3.png is empty: it is skipped" in said
    (tmp_path / "tensors").mkdir()
    tensors = Scratch(tmp_path / "tensors", text.replace('"image_folder"', '"safetensors"').replace("/images", "/x.safetensors"))
    left_out = ("image_size", "resize", "on_broken")
    lines = [line for line in tensors.config.read_text().splitlines() if not line.startswith(left_out)]
    tensors.config.write_text("\n".join(lines).replace('kind = "safetensors"', 'kind = "safetensors"\nweights = "w"'))
    pixels = [pixel for label in range(3) for number in range(10) for pixel in planes(10, 10, label * 50 + number)]
    write_safetensors(tmp_path / "tensors/x.safetensors", x=("F64", [30, 3, 10, 10], pixels), y=("I64", [30], [i // 10 for i in range(30)]),
                      w=("F64", [30], [float(i != 13) for i in range(30)]))
    onebatch.run(2, "train", tensors.config)
    assert relative_l2(weights(files), weights(tensors)) < 1e-14


def test_a_broken_file_ends_the_run(onebatch, tmp_path):
    scratch = prepared(tmp_path, CONFIG)
    (tmp_path / "images/bee/3.png").write_bytes(b"GIF89a")
    assert "bee/3.png is a GIF" in onebatch.run(2, "train", scratch.config, *settings("run.max_steps=30"), code=2)


def test_skipped_files_are_named_once_and_counted(onebatch, tmp_path):
    scratch = prepared(tmp_path, SKIPPING)
    (tmp_path / "images/bee/3.png").write_bytes(png(9, 9, 1)[:-30])
    (tmp_path / "images/cow/7.png").write_bytes(b"hello")
    said = onebatch.run(2, "train", scratch.config, *settings("run.max_steps=20"))
    assert said.count("bee/3.png is cut off") == 1 and said.count("cow/7.png is no JPEG") == 1
    assert "2 of the data's files could not be read" in said


def test_eval_and_predict_name_what_they_skip(onebatch, tmp_path):
    scratch = prepared(tmp_path, SKIPPING + '[data.validation]\npath = "{runs}/../other"\n')
    make_images(tmp_path / "other")
    (tmp_path / "other/bee/3.png").write_bytes(png(9, 9, 1)[:-30])
    onebatch.run(1, "train", scratch.config, *settings("run.max_steps=2"))
    checkpoint = ("--checkpoint", scratch.runs / "run")
    for command, became in ((("eval",), "and counted for nothing"), (("predict", "--out", tmp_path / "out.safetensors"), "and have the outputs of a grey image")):
        said = onebatch.run(2, command[0], scratch.config, *checkpoint, *command[1:])
        assert said.count("bee/3.png is cut off") == 1, said
        assert f"1 of the data's files could not be read {became}" in said, said


def test_a_class_of_validation_alone_is_named(onebatch, tmp_path):
    scratch = prepared(tmp_path, CONFIG + '[data.validation]\npath = "{runs}/../other"\n')
    make_images(tmp_path / "other", classes=("ant", "dog"))
    assert 'the class "dog" is none of the training data\'s 3' in onebatch.run(1, "train", scratch.config, code=2)


def test_lists_that_differ_between_ranks_are_refused(onebatch, tmp_path):
    """Two folders under one name: a link that is relative to where each rank was started."""
    scratch = prepared(tmp_path, CONFIG.replace('path = "{runs}/../images"', 'path = "images"'))
    make_images(tmp_path / "there/images", classes=("ant", "bee", "fox"))
    starts = [word for folder in (tmp_path, tmp_path / "there") for word in (":", "-np", "1", "-wdir", str(folder), onebatch.path, "train", str(scratch.config))]
    done = onebatch.finish(["mpirun", "--oversubscribe", "--bind-to", "none", *starts[1:]])
    assert done.returncode == 2 and "the training data's digest" in done.stdout + done.stderr


def test_ranks_with_unlike_validation_data_are_refused(onebatch, tmp_path):
    scratch = Scratch(tmp_path, DIGITS_MLP.replace("[data.validation]", '[data.validation]\npath = "validation.safetensors"').replace('kind = "idx"\npath = "data/digits"', f'kind = "safetensors"\npath = "{tmp_path}/train.safetensors"'))
    write_safetensors(tmp_path / "train.safetensors", x=("F32", [300, 2], [0.5] * 600), y=("I64", [300], [i % 3 for i in range(300)]))
    (tmp_path / "there").mkdir()
    for folder, count in ((tmp_path, 10), (tmp_path / "there", 30)):
        write_safetensors(folder / "validation.safetensors", x=("F32", [count, 2], [0.5] * 2 * count), y=("I64", [count], [i % 3 for i in range(count)]))
    starts = [word for folder in (tmp_path, tmp_path / "there") for word in (":", "-np", "1", "-wdir", str(folder), onebatch.path, "train", str(scratch.config))]
    done = onebatch.finish(["mpirun", "--oversubscribe", "--bind-to", "none", *starts[1:]])
    assert done.returncode == 2 and "the number of validation samples" in done.stdout + done.stderr, done.stdout + done.stderr


def test_ranks_with_unlike_values_of_as_many_samples_are_refused(onebatch, tmp_path):
    scratch = Scratch(tmp_path, DIGITS_MLP.replace("[data.validation]", "").replace('kind = "idx"\npath = "data/digits"', 'kind = "safetensors"\npath = "train.safetensors"'))
    (tmp_path / "there").mkdir()
    for folder, one in ((tmp_path, 1), (tmp_path / "there", 2)):
        write_safetensors(folder / "train.safetensors", x=("F32", [30, 2], [0.5] * 60), y=("I64", [30], [0, one, *(i % 3 for i in range(28))]))
    starts = [word for folder in (tmp_path, tmp_path / "there") for word in (":", "-np", "1", "-wdir", str(folder), onebatch.path, "train", str(scratch.config))]
    done = onebatch.finish(["mpirun", "--oversubscribe", "--bind-to", "none", *starts[1:]])
    assert done.returncode == 2 and "the training data's digest" in done.stdout + done.stderr, done.stdout + done.stderr


def test_a_label_that_is_left_out_is_no_class(onebatch, tmp_path):
    scratch = prepared(tmp_path, CONFIG.replace('/../images"', '/../images.csv"') + "[loss]\nignore_index = 255\n")
    scratch.runs.mkdir(exist_ok=True)  # which the path goes through
    (tmp_path / "images.csv").write_text("path,label\n" + "".join(f"images/{name}/{number}.png,{255 if number == 3 else label}\n" for label, name in enumerate(("ant", "bee", "cow")) for number in range(10)))
    onebatch.run(1, "data", scratch.config, "--json", tmp_path / "data.json")
    assert read_json(tmp_path / "data.json")["train"]["num_classes"] == 3


def test_other_kinds_refuse_what_they_cannot_do(onebatch, tmp_path):
    scratch = Scratch(tmp_path, CONFIG.replace('kind = "image_folder"', 'kind = "idx"'))
    said = onebatch.run(1, "train", scratch.config, code=2)
    assert "data.augment.hue" in said and 'belongs to data.kind = "image_folder"' in said


def shards_of(scratch, folder, label=lambda number: ("cls", str(number).encode())):
    """The images of the scratch's folder, as two tar files, in their order."""
    folder.mkdir()
    images = sorted((scratch.runs.parent / "images").rglob("*.png"))
    for part, some in enumerate((images[:13], images[13:])):
        with tarfile.open(folder / f"{part}.tar", "w") as tar:
            for number, image in enumerate(some):
                ending, text = label("ant bee cow".split().index(image.parent.name))
                for name, content in ((f"a/{number}.png", image.read_bytes()), (f"a/{number}.{ending}", text)):
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    text = scratch.config.read_text().replace('kind = "image_folder"', 'kind = "tar"\ninputs = ["jpg;png"]\ntarget = "cls"').replace("/images", f"/{folder.name}")
    scratch.config.write_text(text.replace('name = "run"', f'name = "{folder.name}"'))


@pytest.mark.parametrize("target, label", [("cls", None), ("json:label", lambda number: ("json", json.dumps({"label": number, "words": "x"}).encode()))])
@pytest.mark.parametrize("text", [CONFIG, MIXED], ids=["changed", "mixed"])
def test_shards_of_images_train_as_their_folder_does(onebatch, tmp_path, text, target, label):
    scratch = prepared(tmp_path, text)
    onebatch.run(2, "train", scratch.config)
    shards_of(scratch, tmp_path / "shards", **({"label": label} if label else {}))
    onebatch.run(2, "train", scratch.config, *settings("run.name='shards'", f"data.target='{target}'"))
    (file,) = scratch.runs.glob("shards/checkpoints/step-*6/model.safetensors")
    assert relative_l2(read_safetensors(file), weights(scratch)) < 1e-13


def test_what_shards_of_images_lack_is_named(onebatch, tmp_path):
    scratch = prepared(tmp_path, SKIPPING)
    (tmp_path / "images/bee/3.png").write_bytes(png(9, 9, 1)[:-30])
    shards_of(scratch, tmp_path / "shards")
    said = onebatch.run(2, "train", scratch.config, *settings("run.max_steps=20"))
    assert "1.tar: the .jpg;png of sample 13, at byte 512, is cut off" in said, said
    said = onebatch.run(1, "train", scratch.config, *settings("run.name='no'", "data.target='json:label'"), code=2)
    assert "holds no a/0.json" in said, said
    said = onebatch.run(1, "train", scratch.config, *settings("run.name='no'", "data.target=''"), code=2)
    assert 'data.target' in said and '"json:label"' in said, said
    said = onebatch.run(1, "train", scratch.config, *settings("run.name='no'", "data.inputs=['npy']"), code=2)
    assert "data.image_size" in said and "data.augment" in said, said
