"""python -m onebatch convert --classes: which value of a column has which number, in one split and in another; and what fills lists of labels up."""
import json
import sys
import warnings

import pytest

pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("safetensors.numpy")

from conversions import command, joined, refusal  # noqa: E402
from onebatch import __main__ as commands  # noqa: E402
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


UNLIKE = {  # labels of two files, what is said of them
    "numbers and words": ([1, 2], ["cat"], "numbers", "words"),
    "words and fractions": (["cat"], [0.5], "words", "numbers"),
    "words and bytes": (["cat"], [b"dog"], "words", "binary"),
}


@pytest.mark.parametrize("labels, others, kind, other", UNLIKE.values(), ids=UNLIKE)
def test_classes_of_unlike_kinds_have_no_order(tmp_path, labels, others, kind, other):
    for name, values in (("a", labels), ("b", labels), ("c", others)):
        parquet.write_table(pyarrow.table({"label": values}), tmp_path / f"{name}.parquet")
    said = refusal(tmp_path / "*.parquet", tmp_path / "out", LABEL)
    assert said == f"{tmp_path}/a.parquet has {kind} in 'label', {tmp_path}/c.parquet {other}: write them alike"


def test_numbers_of_unlike_types_are_sorted_together(tmp_path):
    for i, labels in enumerate(([2, 10], [0.5])):
        parquet.write_table(pyarrow.table({"label": labels}), tmp_path / f"{i}.parquet")
    assert convert(tmp_path / "*.parquet", tmp_path / "out", LABEL, workers=1)["classes"] == [0.5, 2, 10]


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


@pytest.fixture
def tagged(tmp_path):
    """Tokens with a label each, beside other lists."""
    lists = {"ids": ([5, 6, 7], [8]), "tags": ([0, 1, 0], [1]), "small": ([1, 2, 3], [4]), "scores": ([0.5, 1, 2], [3])}
    types = {"small": pyarrow.uint8(), "scores": pyarrow.float32()}
    columns = {name: pyarrow.array(values, pyarrow.list_(types.get(name, pyarrow.int64()))) for name, values in lists.items()}
    parquet.write_table(pyarrow.table({**columns, "label": [3, 4]}), tmp_path / "tagged.parquet", row_group_size=1)
    return tmp_path / "tagged.parquet"


def test_columns_are_filled_up_with_what_is_wished(tagged, tmp_path):
    wishes = Wishes("tensors", pad=4, pad_value=(("tags", -100), ("small", 255), ("scores", -1.5)))
    convert(tagged, tmp_path / "out", wishes, workers=1)
    found = joined(tmp_path / "out")
    assert found["tags"].tolist() == [[0, 1, 0, -100], [1, -100, -100, -100]] and found["ids"].tolist() == [[5, 6, 7, 0], [8, 0, 0, 0]]
    assert found["small"].tolist() == [[1, 2, 3, 255], [4, 255, 255, 255]] and found["small"].dtype == numpy.uint8
    assert found["scores"].tolist() == [[0.5, 1, 2, -1.5], [3, -1.5, -1.5, -1.5]] and found["scores"].dtype == numpy.float32
    assert found["tags_lengths"].tolist() == [3, 1] and found["label"].tolist() == [3, 4]


FILLERS = {  # wishes, what is said
    "without --pad": ({"pad": 0, "pad_value": (("tags", -100),)}, "write --pad N, too"),
    "packed": ({"pad": 0, "packed": True, "pad_value": (("tags", -100),)}, "write --pad N, too"),
    "two numbers": ({"pad_value": (("tags", -100), ("tags", 0))}, "--pad-value has two numbers for 'tags': write one of them"),
    "no list": ({"pad_value": (("label", -100),)}, "tagged.parquet: --pad-value label=-100: 'label' is no column of lists that --pad fills up"),
    "no column": ({"pad_value": (("tag", -100),)}, "'tag' is no column of lists"),
    "a column left out": ({"columns": ("ids",), "pad_value": (("tags", -100),)}, "'tags' is no column of lists"),
    "classes": ({"classes": "label", "pad_value": (("label", -100),)}, "'label' is no column of lists"),
    "unsigned": ({"pad_value": (("small", -100),)}, "tagged.parquet: --pad-value small=-100: 'small' holds uint8, whole numbers from 0 to 255: write one of them"),
    "a fraction": ({"pad_value": (("tags", 0.5),)}, "'tags' holds int64, whole numbers from -9223372036854775808 to 9223372036854775807: write one of them"),
    "more than 64 bits": ({"pad_value": (("tags", 1 << 63),)}, "'tags' holds int64, whole numbers"),
    "a large fraction": ({"pad_value": (("scores", 1e39),)}, "'scores' holds float32, numbers from -3.4"),
    "no number": ({"pad_value": (("scores", float("nan")),)}, "'scores' holds float32, numbers from -3.4"),
}


@pytest.mark.parametrize("wishes, said", FILLERS.values(), ids=FILLERS)
def test_what_cannot_fill_a_column_up_is_said(tagged, tmp_path, wishes, said):
    assert said in refusal(tagged, tmp_path / "out", Wishes("tensors", **{"pad": 4, **wishes}))


def test_the_command_fills_labels_up(tagged, tmp_path):
    done = command(tagged, tmp_path / "out", "--to", "tensors", "--columns", "ids,tags", "--pad", "4", "--pad-value", "tags=-100", "--pad-value", "ids=1", "--workers", "1")
    assert done.returncode == 0 and not done.stderr, done.stderr
    found = joined(tmp_path / "out")
    assert found["tags"].tolist() == [[0, 1, 0, -100], [1, -100, -100, -100]] and found["ids"].tolist() == [[5, 6, 7, 1], [8, 1, 1, 1]]


@pytest.mark.parametrize("text", ("tags", "=3", "tags=", "tags=none"))
def test_no_number_for_a_column_is_said(tmp_path, monkeypatch, capsys, text):
    monkeypatch.setattr(sys, "argv", ["onebatch", "convert", "a.parquet", str(tmp_path / "out"), "--to", "tensors", "--pad", "4", "--pad-value", text])
    with pytest.raises(SystemExit):
        commands.main()
    assert "write COLUMN=NUMBER, as tags=-100" in capsys.readouterr().err


def test_a_plan_without_numbers_to_fill_up_with_is_an_earlier_versions(tagged, tmp_path):
    plans = {}
    for name, fillers in (("none", ()), ("some", (("tags", -100),))):
        convert(tagged, tmp_path / name, Wishes("tensors", columns=("tags",), pad=4, pad_value=fillers), workers=1)
        plans[name] = json.loads((tmp_path / name / ".convert-plan.json").read_text())
    assert set(plans["none"]) == {"source", "files", "rows", "pieces", "to", "columns", "classes", "pad", "packed", "text", "tokenizer", "separator", "image"}
    assert plans["some"] == {**plans["none"], "pad_value": [["tags", -100]]}
    assert "another conversion" in refusal(tagged, tmp_path / "some", Wishes("tensors", columns=("tags",), pad=4, pad_value=(("tags", -1),)))
    assert convert(tagged, tmp_path / "some", Wishes("tensors", columns=("tags",), pad=4, pad_value=(("tags", -100),)), workers=1)["kept"] == 1


WARNED = {  # columns, numbers to fill up with, what is said
    "two": (("ids", "tags"), (), "'ids' and 'tags' were filled up with 0: where one holds labels, 0 counts as class 0; write --pad-value tags=-100, or --packed"),
    "labels by their name": (("tags", "ids"), (), "'tags' and 'ids' were filled up with 0: where one holds labels, 0 counts as class 0; write --pad-value tags=-100, or --packed"),
    "no -100": (("ids", "small"), (), "'ids' and 'small' were filled up with 0: where one holds labels, 0 counts as class 0; write --pad-value ids=-100, or --packed"),
    "two of three": (("ids", "tags", "small"), (("tags", -100),), None),
    "0 that is meant": (("ids", "tags"), (("ids", 0),), None),
    "fractions": (("ids", "scores"), (), None),
    "a number beside": (("ids", "label"), (), None),
}


@pytest.mark.parametrize("columns, fillers, said", WARNED.values(), ids=WARNED)
def test_labels_that_may_be_filled_up_with_a_class_are_warned_of_once(tagged, tmp_path, columns, fillers, said):
    for _ in range(2):  # and where all is there
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            report = convert(tagged, tmp_path / "out", Wishes("tensors", columns=columns, pad=4, pad_value=fillers), workers=1, rows=1)
        assert report["pieces"] == 2 and [str(warning.message) for warning in caught] == ([said] if said else [])


@pytest.mark.parametrize("values, pad", (([[1], [2]], 0), ([1, 2], 1)))
def test_columns_beside_lengths_of_their_own_were_not_filled_up(tmp_path, values, pad):
    parquet.write_table(pyarrow.table({"a": values, "a_lengths": [1, 1], "b": values, "b_lengths": [1, 1]}), tmp_path / "rows.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convert(tmp_path / "rows.parquet", tmp_path / "out", Wishes("tensors", pad=pad), workers=1)
