"""python -m onebatch convert --classes: which value of a column has which number, in one split and in another."""
import json

import pytest

pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("safetensors.numpy")

from conversions import command, joined, refusal  # noqa: E402
from onebatch.converting import Wishes, convert  # noqa: E402

LABEL = Wishes("tensors", classes="label")


def csv(path, labels):
    path.write_text("x,label\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels)))
    return path


def described(path, labels, names):
    """With Hugging Face's names for the numbers."""
    features = {"label": {"names": names, "_type": "ClassLabel"}}
    parquet.write_table(pyarrow.table({"label": labels}).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})}), path)
    return path


SPELLED = {  # labels, classes
    "one number in three ways": (["01", "1", "1.0", "1"], ["01", "1", "1.0"]),
    "leading zeros": (["10", "01"], ["01", "10"]),
    "true and True": (["true", "True"], ["True", "true"]),
    "plain numbers": (["10", "0", "-1", "2"], [-1, 0, 2, 10]),
    "plain fractions": (["10.5", "2.0"], [2.0, 10.5]),
    "whole numbers beside fractions": (["10", "0.5", "2", "1.5"], [0.5, 1.5, 2, 10]),
    "one number in two ways": (["2.0", "2", "10"], ["10", "2", "2.0"]),
    "words": (["dog", "NA", "cat"], ["NA", "cat", "dog"]),
    "more digits than 64 bits": (["1" + "0" * 400, "1"], [1, 10**400]),
}


@pytest.mark.parametrize("labels, classes", SPELLED.values(), ids=SPELLED)
def test_labels_of_a_csv_are_what_is_written(tmp_path, labels, classes):
    report = convert(csv(tmp_path / "a.csv", labels), tmp_path / "out", LABEL, workers=1)
    assert report["classes"] == classes and [type(value) for value in report["classes"]] == [type(value) for value in classes]
    assert joined(tmp_path / "out")["label"].tolist() == [[str(value) for value in classes].index(label) for label in labels]


def test_labels_of_several_csv_files_are_of_one_kind(tmp_path):
    csv(tmp_path / "a.csv", ["10", "2"])
    csv(tmp_path / "b.csv", ["cat"])
    assert convert(tmp_path / "*.csv", tmp_path / "out", LABEL, workers=1)["classes"] == ["10", "2", "cat"]
    assert joined(tmp_path / "out")["label"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("labels", (["1", ""], ["1", "NA"], ["cat", ""]))
def test_a_label_that_is_missing_is_no_class(tmp_path, labels):
    said = refusal(csv(tmp_path / "a.csv", labels), tmp_path / "out", LABEL)
    assert "a.csv: the column 'label' lacks a value in some rows: leave them out first" in said


def test_numbers_stay_what_their_description_says(tmp_path):
    source = described(tmp_path / "rows.parquet", [0, 1, -1], ["1", "0"])
    assert convert(source, tmp_path / "out", LABEL, workers=1)["classes"] == ["1", "0"]
    assert joined(tmp_path / "out")["label"].tolist() == [0, 1, -1], "-1 is no label"
    assert "has None in 'label'" in refusal(described(tmp_path / "rows.parquet", [0, None], ["1", "0"]), tmp_path / "none", LABEL)


@pytest.fixture
def train(tmp_path):
    convert(csv(tmp_path / "train.csv", ["emu", "cat", "dog"]), tmp_path / "train", LABEL, workers=1)
    return tmp_path / "train"


def test_a_split_that_lacks_a_class_has_the_numbers_of_another(tmp_path, train):
    source = csv(tmp_path / "held.csv", ["emu", "cat"])
    done = command(source, tmp_path / "held", "--to", "tensors", "--classes", "label", "--classes-of", train, "--workers", "1")
    assert done.returncode == 0 and "\n3 classes: cat, dog, emu\n" in done.stdout, done.stderr
    assert joined(tmp_path / "held")["label"].tolist() == [2, 0]
    assert json.loads((tmp_path / "held" / "convert.json").read_text())["classes"] == ["cat", "dog", "emu"]
    assert "another conversion" in refusal(source, tmp_path / "held", LABEL), "its own classes are others"


def test_a_class_that_another_split_lacks_is_named(tmp_path, train):
    csv(tmp_path / "held-0.csv", ["cat"])
    csv(tmp_path / "held-1.csv", ["fox", "cat", "gnu", "fox"])
    said = refusal(tmp_path / "held-*.csv", tmp_path / "held", LABEL, like=train)
    assert "held-1.csv: 'label' holds fox, gnu" in said and "has no such class, but 3 classes: cat, dog, emu: leave such rows out" in said
    assert not (tmp_path / "held").exists()


def test_numbers_are_the_classes_that_they_stand_for(tmp_path, train):
    convert(described(tmp_path / "held.parquet", [0, 1, 1], ["dog", "cat"]), tmp_path / "held", LABEL, workers=1, like=train)
    assert joined(tmp_path / "held")["label"].tolist() == [1, 0, 0]
    assert "holds fox" in refusal(described(tmp_path / "fox.parquet", [0], ["fox"]), tmp_path / "fox", LABEL, like=train)
    assert "holds -1" in refusal(described(tmp_path / "none.parquet", [0, -1], ["dog"]), tmp_path / "none", LABEL, like=train)
    convert(csv(tmp_path / "numbers.csv", [0, 10, 2]), tmp_path / "numbers", LABEL, workers=1)
    parquet.write_table(pyarrow.table({"label": [10, 2]}), tmp_path / "some.parquet")
    convert(tmp_path / "some.parquet", tmp_path / "some", LABEL, workers=1, like=tmp_path / "numbers")
    assert joined(tmp_path / "some")["label"].tolist() == [2, 1]


def test_folders_of_images_are_named_as_in_another_split(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    for split, labels in (("train", (1, 10, 2)), ("held", (2,))):
        (tmp_path / f"{split}.csv").write_text("image,label\n" + "".join(f"a.png,{label}\n" for label in labels))
    wishes = Wishes("images", classes="label")
    convert(tmp_path / "train.csv", tmp_path / "train", wishes, workers=1)
    with pytest.warns(UserWarning, match="has no row"):
        convert(tmp_path / "held.csv", tmp_path / "held", wishes, workers=1, like=tmp_path / "train")
    folders = [sorted(path.name for path in (tmp_path / split).iterdir() if path.is_dir()) for split in ("train", "held")]
    assert folders == [["01", "02", "10"]] * 2 and len(list((tmp_path / "held" / "02").iterdir())) == 1


def test_many_classes_are_counted_and_the_option_is_named(tmp_path):
    source = csv(tmp_path / "a.csv", range(12))
    done = command(source, tmp_path / "out", "--to", "tensors", "--classes", "label", "--workers", "1")
    assert f"12 classes: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more; another split has the same ones by --classes-of {tmp_path}/out\n" in done.stdout


def test_a_folder_without_classes_is_refused(tmp_path, train):
    source = csv(tmp_path / "a.csv", ["cat"])
    assert "write --classes COLUMN, too" in refusal(source, tmp_path / "out", Wishes("tensors", columns=("x",)), like=train)
    assert "no convert.json with classes is there: name a folder" in refusal(source, tmp_path / "out", LABEL, like=tmp_path / "nowhere")
    convert(source, tmp_path / "plain", Wishes("tensors", columns=("x",)), workers=1)
    assert "was written without --classes" in refusal(source, tmp_path / "out", LABEL, like=tmp_path / "plain")
