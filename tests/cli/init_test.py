"""`onebatch init`: the configuration that it writes for what it finds trains at once; what it cannot know it says."""
import csv
import io
import json
import random
import re
import struct
import subprocess
import tarfile
import zlib

import pytest

from program import ROOT, read_json, write_safetensors

random.seed(5)


def png(width, height, colour):
    """A picture of one colour, from the format's definition."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + bytes(colour) * width for _ in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def write_images(folder, classes=("cat", "dog"), count=16, size=(12, 10)):
    for index, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            (folder / name / f"{i}.png").write_bytes(png(*size, (200 * index % 256, 10 * i, 90)))


@pytest.fixture
def init(onebatch, tmp_path, monkeypatch):
    """init in a folder of the test's own; returns what it says and the file that it wrote."""
    def call(*arguments, code=0, out="made.toml"):
        file = tmp_path / out
        command = [onebatch.path, "init", *map(str, arguments), *(["--out", str(file)] if out else [])]
        done = subprocess.run(command, cwd=tmp_path, env=onebatch.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr, file

    return call


@pytest.fixture
def trains(onebatch, tmp_path):
    """That a file trains as it is, for a few steps."""
    def train(file, steps=3):
        document = tmp_path / "train.json"
        command = [onebatch.path, "train", str(file), "--quiet", "--json", str(document), "--set", f"run.max_steps={steps}", "--set", f"run.output_dir={tmp_path}/runs"]
        done = subprocess.run(command, cwd=tmp_path, env=onebatch.environment, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr + file.read_text()
        assert read_json(document)["steps"] == steps
        return read_json(document)

    return train


def keys_of(file):
    """section.key -> value as text."""
    keys, section = {}, ""
    for line in file.read_text().splitlines():
        if match := re.fullmatch(r"\[(.*)\]", line):
            section = match[1]
        elif match := re.match(r"(\w+) = (.*?)\s*(#.*)?$", line):
            keys[f"{section}.{match[1]}"] = match[2].strip()
    return keys


def test_class_folders_of_small_images(init, trains, tmp_path):
    write_images(tmp_path / "photos")
    words, file = init("photos")
    assert "32 images of 2 classes, 10x12 pixels" in words
    keys = keys_of(file)
    assert keys["data.kind"] == '"image_folder"' and keys["data.image_size"] == "[10, 10]" and keys["model.stem"] == '"cifar"'
    assert keys["data.validation.fraction"] == "0.1"
    trains(file)


def test_folders_for_training_and_validation(init, trains, tmp_path):
    write_images(tmp_path / "photos/train")
    write_images(tmp_path / "photos/val", count=4)
    write_images(tmp_path / "photos/test", count=4)
    keys = keys_of(init("photos")[1])
    assert keys["data.path"] == '"photos/train"' and keys["data.validation.path"] == '"photos/val"'
    result = trains(init("photos", "--force")[1])
    assert result["validation_accuracy"] is not None


def test_val_validates_before_test_however_they_are_spelt(init, tmp_path):
    for name in ("Train", "Test", "Val"):
        write_images(tmp_path / "photos" / name, count=4)
    keys = keys_of(init("photos")[1])
    assert keys["data.path"] == '"photos/Train"' and keys["data.validation.path"] == '"photos/Val"'


def test_of_several_folders_for_training_that_called_train_is_taken(init, tmp_path):
    for name in ("Train", "train_small", "val"):
        write_images(tmp_path / "photos" / name, count=4)
    keys = keys_of(init("photos")[1])
    assert keys["data.path"] == '"photos/Train"' and keys["data.validation.path"] == '"photos/val"'


def test_several_folders_for_training_are_named_where_none_is_called_train(init, tmp_path):
    for name in ("train_full", "train_small", "val"):
        write_images(tmp_path / "photos" / name, count=4)
    words, file = init("photos", code=2)
    assert "photos: which of train_full, train_small is to be trained on is not to be guessed: call it train, or write onebatch init photos/train_full" in words
    assert not file.exists()


def test_large_images_are_cut_to_224(init, tmp_path):
    write_images(tmp_path / "photos", count=10, size=(300, 200))
    keys = keys_of(init("photos")[1])
    assert keys["data.image_size"] == "[224, 224]" and keys["model.depth"] == "18" and keys["data.augment.random_resized_crop"] == "true"


def test_a_list_of_images(init, trains, tmp_path):
    write_images(tmp_path / "photos")
    for name, images in (("train", range(12)), ("val", range(12, 16))):
        with (tmp_path / f"{name}.csv").open("w") as out:
            rows = csv.writer(out)
            rows.writerow(["path", "label"])
            rows.writerows([f"photos/{kind}/{i}.png", kind] for kind in ("cat", "dog") for i in images)
    file = init("train.csv")[1]
    assert keys_of(file)["data.validation.path"] == '"val.csv"'
    trains(file)


@pytest.mark.parametrize("names, held", [(("test", "train", "val"), "val"), (("test", "train"), "test")])
def test_a_list_called_val_validates_before_one_called_test(init, tmp_path, names, held):
    write_images(tmp_path / "photos")
    for name in names:
        (tmp_path / f"{name}.csv").write_text("path,label\n" + "".join(f"photos/{kind}/{i}.png,{kind}\n" for kind in ("cat", "dog") for i in range(16)))
    for data in ("train.csv", "."):
        assert keys_of(init(data, "--force")[1])["data.validation.path"].endswith(f'{held}.csv"')


def test_images_without_classes_are_refused_with_what_to_do(init, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/1.png").write_bytes(png(8, 8, (1, 2, 3)))
    words, file = init("photos", code=2)
    assert "folder of its own, as in photos/cat/1.jpg" in words and not file.exists()


def numbers(count):
    return [random.gauss(0, 1) for _ in range(count)]


def test_tensors_with_classes(init, trains, tmp_path):
    write_safetensors(tmp_path / "data.safetensors", features=("F32", [60, 5], numbers(300)), label=("I64", [60], [i % 3 for i in range(60)]))
    words, file = init("data.safetensors")
    keys = keys_of(file)
    assert "features F32 [60, 5]" in words
    assert (keys["data.inputs"], keys["data.target"], keys["model.kind"]) == ('["features"]', '"label"', '"mlp"')
    trains(file)


def test_tensors_with_numbers_to_predict(init, trains, tmp_path):
    write_safetensors(tmp_path / "data.safetensors", x=("F32", [60, 5], numbers(300)), y=("F32", [60, 2], numbers(120)))
    keys = keys_of(init("data.safetensors")[1])
    assert keys["loss.kind"] == '"mse"' and keys["model.num_classes"] == "2"
    trains(init("data.safetensors", "--force")[1])


def test_tensors_that_are_images(init, trains, tmp_path):
    raw = tmp_path / "data.safetensors"
    write_safetensors(raw, x=("F32", [40, 3, 8, 8], numbers(40 * 192)), y=("I64", [40], [i % 4 for i in range(40)]))
    file = init("data.safetensors")[1]
    assert keys_of(file)["model.kind"] == '"resnet"'
    trains(file)


def test_a_folder_of_tensors_for_training_and_validation(init, trains, tmp_path):
    for name, count in (("train-0", 40), ("train-1", 40), ("validation", 20)):
        (tmp_path / "set").mkdir(exist_ok=True)
        write_safetensors(tmp_path / f"set/{name}.safetensors", x=("F32", [count, 4], numbers(4 * count)), y=("I64", [count], [i % 2 for i in range(count)]))
    words, file = init("set")
    assert "80 samples" in words
    keys = keys_of(file)
    assert keys["data.files"] == '["train-0.safetensors", "train-1.safetensors"]' and keys["data.validation.path"] == '"set"' and keys["data.validation.files"] == '["validation.safetensors"]'
    trains(file)


def test_what_is_called_test_is_kept_for_the_end(init, trains, tmp_path):
    (tmp_path / "set").mkdir()
    for name, count in (("train", 40), ("val", 20), ("test", 30)):
        write_safetensors(tmp_path / f"set/{name}.safetensors", x=("F32", [count, 4], numbers(4 * count)), y=("I64", [count], [i % 2 for i in range(count)]))
    words, file = init("set")
    keys = keys_of(file)
    assert keys["data.path"] == '"set/train.safetensors"' and keys["data.validation.path"] == '"set/val.safetensors"'
    assert "40 samples" in words and "1 of the 3 files is left for the end" in words
    trains(file)


def test_tensors_without_a_target_are_listed(init, tmp_path):
    write_safetensors(tmp_path / "data.safetensors", a=("F32", [6, 5], numbers(30)), b=("F32", [6, 2], numbers(12)))
    words, _ = init("data.safetensors", code=2)
    assert "a F32 [6, 5]; b F32 [6, 2]" in words and "call it y or label" in words


def test_lengths_are_no_target(init, tmp_path):
    columns = {"x": ("F32", [60, 4, 3], numbers(720)), "a_length": ("I64", [60], [i % 4 + 1 for i in range(60)])}
    write_safetensors(tmp_path / "data.safetensors", **columns, z=("I64", [60], [i % 3 for i in range(60)]))
    keys = keys_of(init("data.safetensors")[1])
    assert (keys["data.inputs"], keys["data.target"], keys["data.lengths"]) == ('["x"]', '"z"', '"a_length"')
    write_safetensors(tmp_path / "data.safetensors", **columns)
    assert "is not to be guessed" in init("data.safetensors", "--force", code=2)[0]


def test_of_two_that_may_be_the_target_none_is_guessed(init, tmp_path):
    whole = ("I64", [60], [i % 3 for i in range(60)])
    write_safetensors(tmp_path / "data.safetensors", x=("F32", [60, 5], numbers(300)), age=whole, kind=whole)
    words, file = init("data.safetensors", code=2)
    assert "age I64 [60]; kind I64 [60]" in words and "is not to be guessed: call it y or label" in words and not file.exists()


def test_mnists_files(init, trains):
    words, file = init(ROOT / "data/digits")
    assert "1500 images of 8x8 pixels" in words
    result = trains(file, steps=20)
    assert result["validation_accuracy"] is not None


def test_a_text_beside_images_is_none_of_the_data(init, tmp_path):
    write_images(tmp_path / "photos")
    (tmp_path / "photos" / "LICENSE.txt").write_text("yours\n" * 200)
    assert keys_of(init("photos")[1])["data.kind"] == '"image_folder"'


@pytest.mark.parametrize("classes", [("strain_a", "strain_b"), ("bus", "car", "train")])
def test_a_class_may_be_called_like_a_split(init, tmp_path, classes):
    write_images(tmp_path / "photos", classes)
    words, file = init("photos")
    assert f"{len(classes)} classes" in words and keys_of(file)["data.path"] == '"photos"'


def test_what_has_no_labels_validates_nothing(init, trains, tmp_path):
    write_images(tmp_path / "photos" / "train")
    (tmp_path / "photos" / "test").mkdir()
    (tmp_path / "photos" / "test" / "1.png").write_bytes(png(12, 10, (1, 2, 3)))
    _, file = init("photos")
    assert keys_of(file)["data.path"] == '"photos/train"' and keys_of(file)["data.validation.fraction"] == "0.1"
    trains(file)


def test_without_data_there_is_something_to_try(init, trains):
    trains(init()[1])


def test_booleans_are_two_classes(init, trains, tmp_path):
    write_safetensors(tmp_path / "data.safetensors", x=("F32", [60, 5], numbers(300)), y=("BOOL", [60], [i % 2 == 0 for i in range(60)]))
    _, file = init("data.safetensors")
    assert keys_of(file)["loss.kind"] == '"cross_entropy"'
    trains(file)


def test_shards(init, trains, tmp_path):
    def npy(values):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(values)},), }}".ljust(117) + "\n"
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}f", *values)

    with tarfile.open(tmp_path / "000.tar", "w") as shard:
        for i in range(40):
            for ending, content in (("npy", npy(numbers(6))), ("cls", str(i % 2).encode())):
                entry = tarfile.TarInfo(f"{i:04}.{ending}")
                entry.size = len(content)
                shard.addfile(entry, io.BytesIO(content))
    words, file = init("000.tar")
    assert keys_of(file)["data.inputs"] == '["npy"]'
    assert "40 samples; 1 shard" in words and keys_of(file)["batch.global_batch_size"] == "4"
    trains(file)


def test_shards_of_images(init, trains, tmp_path):
    with tarfile.open(tmp_path / "000.tar", "w") as shard:
        for i in range(40):
            for ending, content in (("png", png(12, 10, (200 * (i % 2), 5 * i, 90))), ("cls", str(i % 2).encode())):
                entry = tarfile.TarInfo(f"{i:04}.{ending}")
                entry.size = len(content)
                shard.addfile(entry, io.BytesIO(content))
    (tmp_path / "README.txt").write_text("forty pictures\n" * 100)
    file = init(".")[1]
    keys = keys_of(file)
    assert keys["data.kind"] == '"tar"' and keys["data.inputs"] == '["png"]' and keys["data.image_size"] == "[10, 10]"
    trains(file)


def test_tokens_need_a_model_and_it_says_how_to_make_one(init, tmp_path):
    (tmp_path / "train.bin").write_bytes(struct.pack("<9000H", *(i % 211 for i in range(9000))))
    (tmp_path / "val.bin").write_bytes(struct.pack("<4000H", *(i % 97 for i in range(4000))))
    words, file = init(".")
    keys = keys_of(file)
    assert keys["data.kind"] == '"tokens"' and keys["data.vocabulary"] == "211" and keys["model.kind"] == '"exported"'
    assert keys["data.path"] == '"./train.bin"' and keys["data.validation.path"] == '"./val.bin"'
    assert "python -m onebatch export" in words


def test_tokens_that_validate_are_no_samples_to_train_on(init, tmp_path):
    for name, count in (("train.bin", 9000), ("val.bin", 4000), ("test.bin", 4000)):
        (tmp_path / name).write_bytes(struct.pack(f"<{count}H", *(i % 211 for i in range(count))))
    file = init(".", "--json", tmp_path / "init.json")[1]
    assert read_json(tmp_path / "init.json")["samples"] == 8999 // int(keys_of(file)["data.block_size"])


def test_texts_of_a_folder_are_a_pattern(init, onebatch, tmp_path):
    for name in ("11.txt", "1342.txt"):
        (tmp_path / name).write_text("to be or not to be, " * 400)
    _, file = init(".")
    assert keys_of(file)["data.path"] == '"./*.txt"'
    done = subprocess.run([onebatch.path, "data", str(file)], cwd=tmp_path, env=onebatch.environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_text_is_its_bytes_and_convert_is_named(init, tmp_path):
    (tmp_path / "corpus.txt").write_text("to be or not to be, " * 400)
    words, file = init("corpus.txt")
    assert keys_of(file)["data.token_type"] == '"uint8"' and "python -m onebatch convert corpus.txt" in words


@pytest.mark.parametrize(("name", "words"), [("table.parquet", "python -m onebatch convert table.parquet table --to tensors"), ("table.csv", "a table (.csv)"),
                                             ("DATA.CSV", "DATA.CSV: a table (.CSV) is not read as it is: rename it to DATA.csv, and then ask again:\n  onebatch init DATA.csv"),
                                             ("t.tsv", "write it with commas in the place of tabs as t.csv"), ("t.json", "write one JSON object a line as t.jsonl"),
                                             ("x.npy", "onebatch.save_dataset"), ("model.pt2", "init DATA --model model.pt2"), ("a.toml", "onebatch train a.toml")])
def test_what_is_not_trained_on_is_told_what_to_do(init, tmp_path, name, words):
    (tmp_path / name).write_text("a,b\n1,2\n")
    said, file = init(name, code=2)
    assert words in said and not file.exists()


def test_a_folder_of_tables_is_not_converted_into_itself(init, tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "tables.csv").write_text("a,b\n1,2\n")
    for data in ("tables", "tables/", "tables.csv"):
        assert f"convert {data} tables-tensors --to tensors\n  onebatch init tables-tensors\n" in init(data, code=2)[0]
    (tmp_path / "tables/b.CSV").write_text("a,b\n1,2\n")
    assert "tables/b.CSV: a table (.CSV) is not read as it is: rename it to tables/b.csv, and then ask again:\n  onebatch init tables\n" in init("tables", code=2)[0]


def test_an_empty_folder_and_none_are_mistakes(init, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "nothing here that can be trained on" in init("empty", code=2)[0]
    assert "there is no nowhere" in init("nowhere", code=2)[0]


def test_a_file_that_is_there_stays(init, tmp_path):
    (tmp_path / "made.toml").write_text("mine")
    words, file = init(code=2)
    assert "made.toml is there already" in words and "--force" in words and file.read_text() == "mine"
    init("--force")
    assert "[run]" in file.read_text()


def test_the_file_is_named_after_the_data(init, tmp_path):
    write_images(tmp_path / "my photos/train")
    words, _ = init("my photos/train", out="")
    assert (tmp_path / "my photos.toml").exists()
    assert "onebatch data 'my photos.toml'" in words


def test_its_document(init, tmp_path):
    write_images(tmp_path / "photos")
    init("photos", "--json", tmp_path / "init.json")
    document = json.loads((tmp_path / "init.json").read_text())
    assert document["samples"] == 32 and document["next"][-1].startswith("onebatch launch train ")
    assert set(document) == {"file", "found", "samples", "model", "notes", "next"}
