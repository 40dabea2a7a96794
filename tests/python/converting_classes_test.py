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
