"""python -m onebatch convert: which files of a folder it takes, and which of them share a piece."""
import numpy
import pytest

pytest.importorskip("torch")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("safetensors.numpy")

from conversions import joined, refusal  # noqa: E402
from onebatch.converting import Wishes, convert  # noqa: E402


def test_of_a_folder_that_was_saved_to_twice_only_the_second_is_taken(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"x": list(range(10))}).save_to_disk(tmp_path / "data", num_shards=1)
    datasets.Dataset.from_dict({"x": list(range(100, 106))}).save_to_disk(tmp_path / "data", num_shards=3)
    convert(tmp_path / "data", tmp_path / "out", Wishes("tensors"), workers=1)
    assert joined(tmp_path / "out")["x"].tolist() == list(range(100, 106))


@pytest.mark.parametrize("name", ("b.CSV", "b.csv.gz"))
def test_a_table_that_would_be_left_out_is_named(tmp_path, name):
    (tmp_path / "tables").mkdir()
    for file in ("a.csv", name):
        (tmp_path / "tables" / file).write_text("x\n1\n")
    assert f"{name} would be left out" in refusal(tmp_path / "tables", tmp_path / "out", Wishes("tensors"))


def test_short_texts_share_a_piece(tmp_path):
    texts = [f"{i}," * (i % 5 + 1) for i in range(40)]
    (tmp_path / "texts").mkdir()
    for i, text in enumerate(texts):
        (tmp_path / f"texts/{i:02}.txt").write_text(text)
    report = convert(tmp_path / "texts", tmp_path / "out", Wishes("tokens", separator="256"), workers=2, rows=16)
    assert (report["pieces"], report["rows"]) == (3, 40)
    found = numpy.concatenate([numpy.fromfile(path, "<u2") for path in sorted((tmp_path / "out").glob("*.bin"))])
    assert found.tolist() == [token for text in texts for token in [*text.encode(), 256]]
    (tmp_path / "texts/07.txt").write_bytes(b"\xff")
    assert "07.txt cannot be read" in refusal(tmp_path / "texts", tmp_path / "other", Wishes("tokens"))


@pytest.mark.parametrize("wishes", (Wishes("tensors"), Wishes("tensors", columns=("148",)), Wishes("tensors", classes="72")), ids=("all", "columns", "classes"))
def test_a_csv_without_names_keeps_its_first_row(tmp_path, wishes):
    (tmp_path / "a.csv").write_text("6,148,72\n1,85,66\n")
    said = refusal(tmp_path / "a.csv", tmp_path / "out", wishes)
    assert said == f"{tmp_path}/a.csv: its first line, 6,148,72, is to name the columns: write a line of names before it"


def test_of_a_long_first_line_the_beginning_is_shown(tmp_path):
    (tmp_path / "a.csv").write_text(",".join(["5", *["0"] * 784]) + "\n" + ",".join(["1"] * 785) + "\n")
    assert "its first line, 5,0,0,0,0,0,0,0,…, is to name" in refusal(tmp_path / "a.csv", tmp_path / "out", Wishes("tensors"))


@pytest.mark.parametrize("names", (["0", "1", "2"], ["", "0", "1"], ["6", "148", "age"]), ids=",".join)
def test_names_that_are_numbers_in_order_or_beside_words_are_names(tmp_path, names):
    (tmp_path / "a.csv").write_text(",".join(names) + "\n1,85,66\n")
    convert(tmp_path / "a.csv", tmp_path / "out", Wishes("tensors"), workers=1)
    assert {name: values.tolist() for name, values in joined(tmp_path / "out").items()} == dict(zip(names, ([1], [85], [66])))


def twice(folder, kind):
    """A file with two columns x."""
    table, file = pyarrow.Table.from_arrays([pyarrow.array([i]) for i in range(3)], names=["x", "y", "x"]), folder / f"a.{kind}"
    if kind == "csv":
        file.write_text("x,y,x\n0,1,2\n")
    elif kind == "parquet":
        parquet.write_table(table, file)
    else:
        with pyarrow.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    return file


@pytest.mark.parametrize("kind", ("csv", "parquet", "arrow"))
def test_columns_of_one_name_are_refused_where_they_are_taken(tmp_path, kind):
    source = twice(tmp_path, kind)
    for i, wishes in enumerate((Wishes("tensors"), Wishes("tensors", columns=("x",)), Wishes("tensors", classes="x"), Wishes("tokens", text="x"))):
        assert refusal(source, tmp_path / f"out-{i}", wishes) == f"{source} has 2 columns 'x': give each column a name of its own"
    convert(source, tmp_path / "y", Wishes("tensors", columns=("y",)), workers=1)
    assert {name: values.tolist() for name, values in joined(tmp_path / "y").items()} == {"y": [1]}
