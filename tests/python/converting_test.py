"""python -m onebatch convert: what it writes is read back by other libraries; killed, it goes on; what it refuses."""
import io
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("safetensors.numpy")

from conversions import command, environment, joined, refusal, same, words  # noqa: E402
from onebatch import __main__ as commands  # noqa: E402
from onebatch import written  # noqa: E402
from onebatch.converting import Wishes, convert  # noqa: E402
from onebatch.refusals import ConversionError  # noqa: E402

ROWS = 1000


@pytest.fixture
def rows():
    generator = numpy.random.default_rng(5)
    return {"x": generator.standard_normal((ROWS, 3)).astype("float32"), "label": generator.integers(0, 4, ROWS), "weight": generator.random(ROWS)}


def table_of(rows):
    return pyarrow.table({name: pyarrow.array(list(values)) if values.ndim > 1 else pyarrow.array(values) for name, values in rows.items()})


@pytest.fixture
def source(tmp_path, rows):
    file = tmp_path / "rows.parquet"
    parquet.write_table(table_of(rows), file, row_group_size=70)
    return file


@pytest.mark.parametrize("workers", (1, 3))
def test_parquet_becomes_tensors(source, tmp_path, rows, workers):
    report = convert(source, tmp_path / "out", Wishes("tensors"), workers=workers, rows=200)
    assert (report["pieces"], report["rows"], report["kept"]) == (5, ROWS, 0)
    assert same(joined(tmp_path / "out"), rows)


@pytest.mark.parametrize("names", (("train-00000.parquet", "test-00000.parquet"), ("train/0.parquet", "validation/0.parquet")))
def test_a_folder_of_training_and_test_files_is_two_data_sets(source, tmp_path, rows, names):
    for name in names:
        (tmp_path / "hub" / name).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table_of(rows), tmp_path / "hub" / name)
    with pytest.raises(ConversionError, match=f"{names[0]}.*{names[1]}") as refused:
        convert(tmp_path / "hub", tmp_path / "out", Wishes("tensors"), workers=1)
    pattern = str(refused.value).split('"')[1]
    assert convert(pattern, tmp_path / "out", Wishes("tensors"), workers=1)["rows"] == ROWS


def test_columns_are_chosen(source, tmp_path, rows):
    convert(source, tmp_path / "out", Wishes("tensors", columns=("label",)), workers=1)
    assert same(joined(tmp_path / "out"), {"label": rows["label"]})


def test_csv_becomes_tensors_and_words_become_classes(tmp_path):
    (tmp_path / "a.csv").write_text("size,animal\n1,dog\n2,cat\n")
    (tmp_path / "b.csv").write_text("size,animal\n3,eel\n4,dog\n")
    report = convert(tmp_path / "*.csv", tmp_path / "out", Wishes("tensors", classes="animal"), workers=2)
    assert report["classes"] == ["cat", "dog", "eel"]
    assert same(joined(tmp_path / "out"), {"size": numpy.array([1, 2, 3, 4]), "animal": numpy.array([1, 0, 2, 1])})


def test_what_save_to_disk_wrote_becomes_tensors(tmp_path, rows):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({name: values.tolist() for name, values in rows.items()})
    datasets.DatasetDict({"train": data, "test": data.select(range(10))}).save_to_disk(tmp_path / "data")
    assert "--split" in refusal(tmp_path / "data", tmp_path / "out", Wishes("tensors"))
    convert(tmp_path / "data", tmp_path / "out", Wishes("tensors"), split="train", workers=2, rows=300)
    found = joined(tmp_path / "out")
    assert numpy.array_equal(found["x"].astype("float32"), rows["x"]) and numpy.array_equal(found["label"], rows["label"])


@pytest.mark.parametrize("columns", (("ids", "ids_lengths"), ("ids_lengths", "ids")))
def test_lengths_take_no_columns_place(tmp_path, columns):
    values = {"ids": [[1, 2], [3]], "ids_lengths": [7, 8]}
    parquet.write_table(pyarrow.table({name: values[name] for name in columns}), tmp_path / "rows.parquet")
    assert "'ids_lengths' would be written twice" in refusal(tmp_path / "rows.parquet", tmp_path / "out", Wishes("tensors", pad=2))


def test_a_split_is_that_of_a_folder_with_several(source, tmp_path):
    said = refusal(source.parent, tmp_path / "out", Wishes("tensors"), split="train")
    assert "--split train" in said and "train*.parquet" in said and not (tmp_path / "out").exists()


def test_json_lines_become_tensors(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"x": [1, 2], "label": "b"}\n{"x": [3, 4], "label": "a"}\n')
    convert(tmp_path / "a.jsonl", tmp_path / "out", Wishes("tensors", classes="label"), workers=1)
    assert same(joined(tmp_path / "out"), {"x": numpy.array([[1, 2], [3, 4]]), "label": numpy.array([1, 0])})
    (tmp_path / "broken.jsonl").write_text('{"x": [1, 2]\n')
    assert "broken.jsonl cannot be read" in refusal(tmp_path / "broken.jsonl", tmp_path / "no", Wishes("tensors"))


@pytest.mark.parametrize("row, name", (('{"x": [%s]}\n', "a.jsonl"), ('x\n"%s"\n', "a.csv")))
def test_a_row_may_be_longer_than_a_reader_takes_at_once(tmp_path, row, name):
    """A million bytes are what pyarrow does by itself."""
    (tmp_path / name).write_text(row % ",".join(["12345"] * 400_000))
    wishes = Wishes("tensors") if name == "a.jsonl" else Wishes("tokens", text="x")
    assert convert(tmp_path / name, tmp_path / "out", wishes, workers=1)["rows"] == 1


def test_lists_of_any_length_are_packed(tmp_path):
    rows = {"ids": [[1, 2, 3], [4], [5, 6]], "tags": [[0, 1, 0], [1], [1, 1]], "label": [3, 4, 1]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "rows.parquet")
    convert(tmp_path / "rows.parquet", tmp_path / "packed", Wishes("tensors", packed=True), workers=1)
    found = joined(tmp_path / "packed")
    assert found["ids"].tolist() == [1, 2, 3, 4, 5, 6] and found["tags"].tolist() == [0, 1, 0, 1, 1, 1]
    assert found["offsets"].tolist() == [0, 3, 4, 6] and found["label"].tolist() == rows["label"]


def test_what_cannot_be_packed_is_named(tmp_path):
    parquet.write_table(pyarrow.table({"ids": [[1], [2, 3]], "tags": [[1], [2]]}), tmp_path / "unlike.parquet")
    assert "row 1 of piece 0 has 2 values in 'ids' and 1 in 'tags'" in refusal(tmp_path / "unlike.parquet", tmp_path / "a", Wishes("tensors", packed=True))
    for i, empty in enumerate(([], None)):  # data.offsets refuses them
        parquet.write_table(pyarrow.table({"ids": [[1], empty]}), tmp_path / "empty.parquet")
        assert "row 1 of piece 0 holds nothing in 'ids'" in refusal(tmp_path / "empty.parquet", tmp_path / f"e{i}", Wishes("tensors", packed=True))
    parquet.write_table(pyarrow.table({"x": [1, 2]}), tmp_path / "numbers.parquet")
    assert "no column of 'x' holds some" in refusal(tmp_path / "numbers.parquet", tmp_path / "b", Wishes("tensors", packed=True))
    assert "write one of them" in command(tmp_path / "numbers.parquet", tmp_path / "c", "--to", "tensors", "--pad", "3", "--packed").stderr


def test_lists_of_unlike_lengths_are_filled_up(tmp_path):
    lists = [[1, 2, 3], [], [4], [5, 6]]
    parquet.write_table(pyarrow.table({"ids": lists}), tmp_path / "rows.parquet")
    assert "write --pad 3" in refusal(tmp_path / "rows.parquet", tmp_path / "out", Wishes("tensors"))
    assert "is 3 long" in refusal(tmp_path / "rows.parquet", tmp_path / "two", Wishes("tensors", pad=2))
    convert(tmp_path / "rows.parquet", tmp_path / "padded", Wishes("tensors", pad=4), workers=1)
    found = joined(tmp_path / "padded")
    assert found["ids"].tolist() == [values + [0] * (4 - len(values)) for values in lists]
    assert found["ids_lengths"].tolist() == [3, 0, 1, 2]


def unlike_csv(folder):
    (folder / "a.csv").write_text("x,y\n1,2\n")
    (folder / "b.csv").write_text("x,y\n1.5,2\n")
    return folder / "*.csv", "a.csv", "b.csv: the column 'x' is torch.float64 [] in piece 1, and torch.int64 [] in piece 0"


def unlike_columns(folder):
    (folder / "a.csv").write_text("x,y\n1,2\n")
    (folder / "b.csv").write_text("x\n1\n")
    return folder / "*.csv", "a.csv", "b.csv: the column 'y' is missing in piece 1, and torch.int64 [] in piece 0"


def unlike_lists(folder):
    parquet.write_table(pyarrow.table({"x": [[1] * 10] * 2 + [[1] * 12] * 2}), folder / "a.parquet", row_group_size=2)
    return folder / "a.parquet", "a.parquet", "a.parquet: the column 'x' is torch.int64 [12] in piece 1, and torch.int64 [10] in piece 0"


def unlike_images(folder):
    for i, size in enumerate(((5, 4), (6, 4))):
        image_table(folder / f"{i}.parquet", image=pytest.importorskip("PIL.Image").new("RGB", size), format="png")
    return folder / "*.parquet", "0.parquet", "1.parquet: the column 'image' is torch.uint8 [3, 4, 6] in piece 1, and torch.uint8 [3, 4, 5] in piece 0"


@pytest.mark.parametrize("unlike, workers", ((unlike_csv, 1), (unlike_csv, 2), (unlike_columns, 1), (unlike_lists, 1), (unlike_images, 1)))
def test_pieces_that_are_no_data_set_together_are_named(tmp_path, unlike, workers):
    source, first, said = unlike(tmp_path)
    for _ in range(2):  # and where it goes on
        with pytest.raises(ConversionError) as refused:
            convert(source, tmp_path / "out", Wishes("tensors"), workers=workers, rows=2)
        assert said in str(refused.value) and f"of {tmp_path / first}: " in str(refused.value)
    assert not (tmp_path / "out" / "convert.json").exists()


def test_grey_images_among_coloured_ones_are_said_to_be_so(tmp_path):
    made, raw = pytest.importorskip("PIL.Image"), io.BytesIO()
    made.new("L", (5, 4)).save(raw, "png")
    parquet.write_table(pyarrow.table({"image": [png(1), raw.getvalue()]}), tmp_path / "rows.parquet")
    assert "are grey in some rows and coloured in others" in refusal(tmp_path / "rows.parquet", tmp_path / "out", Wishes("tensors"))


OPTIONS = {"--classes of tokens": "tokens --classes label", "--pad of tokens": "tokens --pad 3", "--packed of tokens": "tokens --packed", "--columns of tokens": "tokens --columns x",
           "--classes-of of tokens": "tokens --classes-of out", "--image of tokens": "tokens --image x", "--columns of images": "images --classes label --columns x",
           "--pad of images": "images --classes label --pad 3", "--text of images": "images --classes label --text x", "--tokenizer of tensors": "tensors --tokenizer t.json",
           "--pad-value of tokens": "tokens --pad-value x=1", "--pad-value of images": "images --classes label --pad-value x=1",
           "--separator of tensors": "tensors --separator 256", "--text of tensors": "tensors --text x", "--image of tensors": "tensors --image x"}  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_of_another_target_is_refused(tmp_path, monkeypatch, capsys, option):
    (tmp_path / "a.csv").write_text("x,text,image,label\n1,a,b,c\n")
    monkeypatch.setattr(sys, "argv", ["onebatch", "convert", str(tmp_path / "a.csv"), str(tmp_path / "out"), "--workers", "1", "--to", *OPTIONS[option].split()])
    assert commands.main() == 2
    name, _, target = option.partition(" of ")
    said = capsys.readouterr().err
    assert f"{name} is of --to " in said and f"changes nothing of --to {target}" in said
    assert not (tmp_path / "out").exists()


def tokens(folder):
    return numpy.concatenate([numpy.fromfile(path, "<u2") for path in sorted(folder.glob("*.bin"))]).tolist()


def test_text_becomes_bytes(tmp_path):
    texts = ["Grüße", "", "€ 5\n"]
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "rows.parquet", row_group_size=1)
    report = convert(tmp_path / "rows.parquet", tmp_path / "out", Wishes("tokens", separator="256"), workers=2, rows=1)
    assert (report["vocabulary"], report["separator"], report["type"]) == (257, 256, "uint16")
    assert tokens(tmp_path / "out") == [number for text in texts for number in (*text.encode(), 256)]


def test_a_plain_text_file_is_one_row(tmp_path):
    (tmp_path / "poem.txt").write_bytes(b"To be\r\nor not\n")
    convert(tmp_path / "poem.txt", tmp_path / "out", Wishes("tokens"), workers=1)
    assert bytes(tokens(tmp_path / "out")) == b"To be\r\nor not\n"


def test_text_becomes_the_tokens_of_a_tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "to": 1, "be": 2, "or": 3, "not": 70000, "<end>": 5}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.enable_truncation(2)  # transformers leaves such settings in the files that it saves
    made.enable_padding(length=7)
    made.save(str(tmp_path / "tokenizer.json"))
    parquet.write_table(pyarrow.table({"line": ["to be or", "not to see"]}), tmp_path / "rows.parquet")
    wishes = Wishes("tokens", text="line", tokenizer=str(tmp_path / "tokenizer.json"), separator="<end>")
    report = convert(tmp_path / "rows.parquet", tmp_path / "out", wishes, workers=1)
    assert report["type"] == "uint32", "a token of the vocabulary has more than 16 bits"
    header, found = numpy.split(numpy.fromfile(tmp_path / "out" / "part-00000.bin", "<i4"), [256])
    assert header.tolist() == [20240801, 7, 8] + [0] * 253, "llm.c's, of 32 bits"
    assert found.tolist() == [1, 2, 3, 5, 70000, 1, 0, 5]
    (tmp_path / "tokenizer.json").write_text((tmp_path / "tokenizer.json").read_text().replace('"to": 1', '"to": 4'))
    assert "another conversion" in refusal(tmp_path / "rows.parquet", tmp_path / "out", wishes), "of another tokenizer in the same file"


def test_the_program_reads_tokens_of_32_bits_as_such(onebatch, tmp_path):
    (tmp_path / "text.txt").write_text("a" * (65 * 16))
    convert(tmp_path / "text.txt", tmp_path / "out", Wishes("tokens", separator="70000"), workers=1)
    (tmp_path / "tokens.toml").write_text(f'[data]\nkind = "tokens"\npath = "{tmp_path}/out"\nblock_size = 16\nvocabulary = 70001\n[model]\nkind = "mlp"\n'
                                          "[batch]\nglobal_batch_size = 2\n[optimizer]\nlr = 0.1\n[run]\nmax_steps = 1\n")  # fmt: skip
    assert "65 samples" in onebatch.run(1, "data", tmp_path / "tokens.toml")


def test_more_tokens_than_a_header_counts_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(written, "MOST_TOKENS", 5)
    (tmp_path / "text.txt").write_text("12345")
    assert "more than 5 tokens" in refusal(tmp_path / "text.txt", tmp_path / "out", Wishes("tokens", separator="70000"))
    convert(tmp_path / "text.txt", tmp_path / "narrow", Wishes("tokens", separator="256"), workers=1)
    assert not list((tmp_path / "out").glob("*.bin")) and len(tokens(tmp_path / "narrow")) == 6


def png(value):
    image = pytest.importorskip("PIL.Image").new("RGB", (5, 4), (value, 10, 20))
    raw = io.BytesIO()
    image.save(raw, "png")
    return raw.getvalue()


def test_images_become_folders_of_their_classes(tmp_path):
    pictures = [png(i) for i in range(6)]
    table = pyarrow.table({"image": [{"bytes": raw, "path": None} for raw in pictures], "label": [10, 2, 10, 2, 10, 2]})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=2)
    convert(tmp_path / "rows.parquet", tmp_path / "out", Wishes("images", classes="label"), workers=2, rows=2)
    found = {path.relative_to(tmp_path / "out").as_posix(): path.read_bytes() for path in (tmp_path / "out").rglob("*.png")}
    assert found == {f"{'10' if i % 2 == 0 else '02'}/{i // 2:05}-{i % 2:06}.png": raw for i, raw in enumerate(pictures)}
    convert(tmp_path / "rows.parquet", tmp_path / "tensors", Wishes("tensors"), workers=1)
    images = joined(tmp_path / "tensors")["image"]
    assert images.shape == (6, 3, 4, 5) and images.dtype == numpy.uint8 and images[:, 0, 0, 0].tolist() == list(range(6))


def image_table(file, **options):
    """A row with an image of PIL as a file."""
    image, raw = options.pop("image"), io.BytesIO()
    image.save(raw, **options)
    parquet.write_table(pyarrow.table({"image": [{"bytes": raw.getvalue(), "path": None}]}), file)
    return file


def test_photographs_are_turned(tmp_path):
    made = pytest.importorskip("PIL.Image")
    exif = made.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise
    picture = numpy.zeros((16, 32, 3), "uint8")
    picture[:, :16] = 250  # left, which then is the top
    convert(image_table(tmp_path / "rows.parquet", image=made.fromarray(picture), format="jpeg", exif=exif, quality=95), tmp_path / "out", Wishes("tensors"), workers=1)
    image = joined(tmp_path / "out")["image"]
    assert image.shape == (1, 3, 32, 16) and (image[0, :, :16] > 240).all() and (image[0, :, 16:] < 10).all()


def test_of_sixteen_grey_bits_the_upper_eight_are_taken(tmp_path):
    made = pytest.importorskip("PIL.Image")
    grey = (numpy.arange(20, dtype="uint16") * 3000).reshape(4, 5)
    convert(image_table(tmp_path / "rows.parquet", image=made.fromarray(grey), format="png"), tmp_path / "out", Wishes("tensors"), workers=1)
    assert (joined(tmp_path / "out")["image"][0, 0] == grey >> 8).all()


@pytest.mark.parametrize("kind", ("float32", "int32", "frames"))
def test_an_image_that_would_lose_what_it_shows_is_refused(tmp_path, kind):
    made = pytest.importorskip("PIL.Image")
    if kind == "frames":
        frames = [made.new("RGB", (5, 4), (shade, 0, 0)) for shade in (10, 20)]
        table, words = image_table(tmp_path / "rows.parquet", image=frames[0], format="gif", save_all=True, append_images=frames[1:]), "it has 2 frames"
    else:
        table, words = image_table(tmp_path / "rows.parquet", image=made.fromarray(numpy.ones((4, 5), kind)), format="tiff"), "numbers of 32 bits"
    assert words in refusal(table, tmp_path / "out", Wishes("tensors"))


def test_a_damaged_image_is_named(tmp_path):
    picture = numpy.random.default_rng(3).integers(0, 256, (64, 64, 3), "uint8")
    raw = io.BytesIO()
    pytest.importorskip("PIL.Image").fromarray(picture).save(raw, "png")
    broken = bytearray(raw.getvalue())
    for place in range(40, 60):
        broken[place] ^= 0x55
    for i, damaged in enumerate((raw.getvalue()[:5000], bytes(broken), raw.getvalue()[:33] + b"\0\0\0\1abc")):
        parquet.write_table(pyarrow.table({"image": [damaged]}), tmp_path / "rows.parquet")
        assert "an image of 'image' cannot be read" in refusal(tmp_path / "rows.parquet", tmp_path / f"out-{i}", Wishes("tensors"))


def labelled(file, labels, names=None):
    """Images that say their row, with Hugging Face's names for the labels."""
    table = pyarrow.table({"image": [png(i) for i in range(len(labels))], "label": labels})
    described = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
    parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(described)}) if names else table, file)
    return file


def classes_in(folder):
    """[class of row 0, of row 1, ...], as torchvision and onebatch number all folders that they find."""
    folders = sorted(os.fsencode(path.name) for path in folder.iterdir() if path.is_dir())
    return [folders.index(os.fsencode(path.parent.name)) for path in sorted(folder.rglob("*.png"), key=lambda path: path.name)]


LABELS = {"names unsorted": (range(3), ["dog", "cat", "eel"]), "names with a slash": (range(3), ["a/b", "a0", "aZ"]), "names sorted": (range(3), ["cat", "dog", "eel"]),
          "many names": (range(12), [f"c{i}" for i in range(12)]), "numbers": ([-2, -1, 3, 10], None), "words": (["a/b", "a0", "aZ"], None)}  # fmt: skip


@pytest.mark.parametrize("labels, names", LABELS.values(), ids=LABELS)
def test_folders_are_in_the_order_of_the_classes(tmp_path, labels, names):
    report = convert(labelled(tmp_path / "rows.parquet", list(labels), names), tmp_path / "out", Wishes("images", classes="label"), workers=1)
    assert classes_in(tmp_path / "out") == list(range(len(labels))) and report["classes"] == (names or labels)


def test_a_class_without_rows_keeps_its_number(tmp_path):
    source = labelled(tmp_path / "rows.parquet", [2, 0], ["cat", "dog", "eel"])
    done = command(source, tmp_path / "out", "--to", "images", "--classes", "label", "--workers", "1")
    assert done.returncode == 0 and "onebatch: the class 'dog' has no row" in done.stderr and "write --to tensors, or drop the class" in done.stderr
    assert classes_in(tmp_path / "out") == [2, 0]


def test_the_program_numbers_the_classes_alike(onebatch, tmp_path):
    convert(labelled(tmp_path / "rows.parquet", [0, 1, 1, 2, 2, 2], ["dog", "cat", "eel"]), tmp_path / "out", Wishes("images", classes="label"), workers=1)
    (tmp_path / "images.toml").write_text(f'[data]\nkind = "image_folder"\npath = "{tmp_path}/out"\nimage_size = [4, 5]\n[model]\nkind = "resnet"\n'
                                          "[batch]\nglobal_batch_size = 2\n[optimizer]\nlr = 0.1\n[run]\nmax_steps = 1\n")  # fmt: skip
    assert "0 0-dog: 1, 1 1-cat: 2, 2 2-eel: 3" in onebatch.run(1, "data", tmp_path / "images.toml")


@pytest.mark.parametrize("label", (-1, 3, None))
def test_a_label_that_is_no_class_is_named(tmp_path, label):
    source = labelled(tmp_path / "rows.parquet", [0, label], ["cat", "dog", "eel"])
    assert f"row 1 of piece 0 has {label} in 'label', which is none of the 3 classes" in refusal(source, tmp_path / "out", Wishes("images", classes="label"))


def test_killed_it_goes_on_and_ends_in_the_same(source, tmp_path, rows):
    whole = tmp_path / "whole"
    convert(source, whole, Wishes("tensors"), workers=1, rows=70)
    target = tmp_path / "out"
    draws = random.Random(7)
    arguments = (source, target, "--to", "tensors", "--rows", "70", "--workers", "2")
    killed = 0
    for _ in range(3):
        process = subprocess.Popen(words(*arguments), env=environment(), start_new_session=True)
        deadline = time.monotonic() + 30
        pieces = len(list(target.glob("*.safetensors")))
        while process.poll() is None and len(list(target.glob("*.safetensors"))) <= pieces and time.monotonic() < deadline:
            time.sleep(draws.random() * 0.01)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
    assert killed > 0, "it ended before it could be killed"
    done = command(*arguments)
    assert done.returncode == 0, done.stderr
    assert same(joined(target), rows)
    assert not list(target.rglob("*.partial*"))
    for path in whole.glob("*.safetensors"):
        assert (target / path.name).read_bytes() == path.read_bytes()


def test_finished_pieces_are_kept_and_damaged_ones_made_again(source, tmp_path, rows):
    target = tmp_path / "out"
    convert(source, target, Wishes("tensors"), workers=1, rows=200)
    damaged, cut, untouched = sorted(target.glob("*.safetensors"))[:3]
    raw = bytearray(damaged.read_bytes())
    raw[-1] ^= 1
    damaged.write_bytes(raw)
    cut.write_bytes(cut.read_bytes()[:-5])
    before = untouched.stat().st_mtime_ns
    report = convert(source, target, Wishes("tensors"), workers=1, rows=200)
    assert (report["pieces"], report["kept"]) == (5, 3)
    assert untouched.stat().st_mtime_ns == before
    assert same(joined(target), rows)


def test_another_conversion_is_refused(source, tmp_path):
    target = tmp_path / "out"
    convert(source, target, Wishes("tensors"), workers=1)
    assert "another conversion" in refusal(source, target, Wishes("tensors", columns=("x",)))
    os.utime(source, ns=(1, 1))
    assert "its source has changed" in refusal(source, target, Wishes("tensors"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert "no conversion of ours" in refusal(source, tmp_path / "mine", Wishes("tensors"))


@pytest.mark.parametrize("wishes, said", (
    (Wishes("tensors", columns=("z",)), "no column 'z': it has 'x', 'label', 'weight'"),
    (Wishes("tokens"), "no column 'text'"),
    (Wishes("tokens", text="label"), "has int in 'label', not text"),
    (Wishes("tokens", separator="<end>"), "--separator <end> is no token"),
    (Wishes("images"), "write --classes COLUMN"),
))  # fmt: skip
def test_what_cannot_be_is_said(source, tmp_path, wishes, said):
    assert said in refusal(source, tmp_path / "out", wishes)


def test_words_and_missing_values_are_named(tmp_path):
    parquet.write_table(pyarrow.table({"word": ["a", "b"]}), tmp_path / "words.parquet")
    assert "'word' holds string" in refusal(tmp_path / "words.parquet", tmp_path / "a", Wishes("tensors"))
    parquet.write_table(pyarrow.table({"n": [1, None]}), tmp_path / "holes.parquet")
    assert "'n' has no value in row 1" in refusal(tmp_path / "holes.parquet", tmp_path / "b", Wishes("tensors"))
    parquet.write_table(pyarrow.table({"n": pyarrow.array([1, 2], pyarrow.uint64())}), tmp_path / "wide.parquet")
    assert "wide.parquet: n is torch.uint64, which no safetensors file holds" in refusal(tmp_path / "wide.parquet", tmp_path / "c", Wishes("tensors"))
    parquet.write_table(pyarrow.table({"tags": [[1], [2]]}), tmp_path / "tags.parquet")
    assert "'tags' holds list" in refusal(tmp_path / "tags.parquet", tmp_path / "d", Wishes("tensors", classes="tags"))


def test_damaged_files_are_named(source, tmp_path):
    whole = source.read_bytes()
    draws = random.Random(3)
    broken = tmp_path / "broken.parquet"
    said = 0
    for case in range(60):
        raw = bytearray(whole[: draws.randrange(len(whole))] if case % 2 else whole)
        for _ in range(3):
            if raw:
                raw[draws.randrange(len(raw))] = draws.randrange(256)
        broken.write_bytes(raw)
        try:
            convert(broken, tmp_path / f"out-{case}", Wishes("tensors"), workers=1)
        except ConversionError as error:
            said += 1
            assert "broken.parquet" in str(error)
    assert said >= 30, "every file that was cut is refused"


def test_nothing_there_is_said_by_the_command(tmp_path):
    done = command(tmp_path / "none", tmp_path / "out", "--to", "tensors")
    assert done.returncode == 2
    assert "there is no file of .parquet, .arrow, .csv, .jsonl, .txt" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ("pyarrow", "numpy"))
def test_without_a_library_that_is_said(source, tmp_path, module):
    hidden = f"import sys; sys.modules[{module!r}] = None; from onebatch.__main__ import main; sys.exit(main())"
    wish = [sys.executable, "-c", hidden, "convert", str(source), str(tmp_path / "out"), "--to", "tensors", "--workers", "1"]
    done = subprocess.run(wish, env=environment(), text=True, capture_output=True, timeout=60)
    assert done.returncode == 2 and "is not here: pip install" in done.stderr


def test_the_report_is_a_document(source, tmp_path):
    convert(source, tmp_path / "out", Wishes("tensors"), workers=1)
    assert json.loads((tmp_path / "out" / "convert.json").read_text())["rows"] == ROWS
    assert pathlib.Path(tmp_path / "out" / "part-00000.safetensors").is_file()
