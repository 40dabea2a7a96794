"""save_dataset(): what it writes is read back by safetensors' own library; what it refuses."""
import collections
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
load_file = pytest.importorskip("safetensors.torch").load_file

import onebatch as package  # noqa: E402
from onebatch import datasets  # noqa: E402
from program import LOADER, ROOT  # noqa: E402

MANY = 9001  # several pieces, and a rest


def same(found, expected):
    return set(found) == set(expected) and all(found[name].dtype == tensor.dtype and torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.fixture
def file(tmp_path):
    return tmp_path / "data.safetensors"


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(datasets, "PIECE_BYTES", 1000)


@pytest.fixture
def columns():
    """Of types with unlike widths, that alignment counts."""
    generator = torch.Generator().manual_seed(1)
    return {"flags": torch.randint(0, 2, (MANY,), generator=generator).bool(), "x": torch.randn(MANY, 3, 2, generator=generator),
            "y": torch.randint(0, 9, (MANY,), generator=generator), "half": torch.randn(MANY, 5, generator=generator).bfloat16()}


class Rows(torch.utils.data.Dataset):
    """Dictionaries by number."""

    def __init__(self, columns):
        self.columns = columns

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, i):
        return {name: column[i] for name, column in self.columns.items()}


class ManyAtOnce(Rows):
    """As Hugging Face's data sets are asked, of lists and numbers of Python."""

    def __getitem__(self, i):
        assert i == 0, "one by one takes ten times as long"
        return {name: column[i].tolist() for name, column in self.columns.items()}

    def __getitems__(self, numbers):
        return [{name: column[i].tolist() for name, column in self.columns.items()} for i in numbers]


class Otherwise(Rows):
    """Gives another number of samples than it was asked for."""

    def __init__(self, columns, more):
        super().__init__(columns)
        self.more = more

    def __getitems__(self, numbers):
        return [self[0]] * (len(numbers) + self.more)


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return (self.rows[i] for i in range(len(self.rows)))


@pytest.mark.parametrize("sort", ["tensors", "arrays", "dictionary", "ordered", "npz", "mapped"])
def test_arrays_are_written_in_pieces(sort, file, columns, tmp_path, small_pieces):
    if sort == "dictionary":
        package.save_dataset(file, columns)
    elif sort == "ordered":  # as what a tokenizer returns is
        package.save_dataset(file, collections.UserDict(columns))
    elif sort == "tensors":
        package.save_dataset(file, **columns)
    else:
        columns = {name: columns[name] for name in ("x", "y")}
        arrays = {name: tensor.numpy() for name, tensor in columns.items()}
        if sort == "npz":
            numpy.savez(tmp_path / "data.npz", **arrays)
            package.save_dataset(file, numpy.load(tmp_path / "data.npz"))
        if sort == "mapped":
            numpy.save(tmp_path / "x.npy", arrays["x"])
            arrays["x"] = numpy.load(tmp_path / "x.npy", mmap_mode="r")
        if sort != "npz":
            package.save_dataset(file, **arrays)
    assert same(load_file(file), columns)


def test_strided_tensors_are_written_in_the_order_of_their_elements(file):
    x = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    package.save_dataset(file, x=x, every_other=torch.arange(8)[::2])
    assert same(load_file(file), {"x": x, "every_other": torch.tensor([0, 2, 4, 6])})


def test_lists_are_numbers_of_pytorch(file):
    package.save_dataset(file, x=[[1.5, 2.0], [3.0, 4.0]], y=[1, 2])
    assert same(load_file(file), {"x": torch.tensor([[1.5, 2.0], [3.0, 4.0]]), "y": torch.tensor([1, 2])})


@pytest.mark.parametrize("first", (1, False))
def test_a_list_has_one_type_whatever_its_first_number_is(file, tmp_path, small_pieces, first):
    numbers = [first] + [2.5] * 999
    package.save_dataset(file, x=numbers, y=tuple([i] for i in numbers))
    assert same(load_file(file), {"x": torch.tensor(numbers), "y": torch.tensor(numbers)[:, None]})
    package.save_dataset(tmp_path / "folder", {"x": numbers}, samples_per_file=1)
    assert load_file(tmp_path / "folder" / "00000.safetensors")["x"].dtype == torch.float32


def test_a_data_set_of_dictionaries_is_written_in_pieces(file, columns, small_pieces):
    package.save_dataset(file, Rows(columns))
    assert same(load_file(file), columns)


def test_a_data_set_that_gives_many_at_once_is_asked_for_many(file, columns):
    named = {"x": columns["x"], "y": columns["y"]}
    package.save_dataset(file, ManyAtOnce({**named, "half": columns["half"]}), names=("x", "y"))
    assert same(load_file(file), named)


def test_a_data_set_of_tuples_has_x_and_y(file, columns):
    package.save_dataset(file, torch.utils.data.TensorDataset(columns["x"], columns["y"]))
    assert same(load_file(file), {"x": columns["x"], "y": columns["y"]})


def test_a_number_of_numpy_keeps_its_type(file):
    third = numpy.float64(1 / 3)
    package.save_dataset(file, [(numpy.zeros(2), third)] * 3)
    assert same(load_file(file), {"x": torch.zeros(3, 2, dtype=torch.float64), "y": torch.full((3,), 1 / 3, dtype=torch.float64)})


def test_parts_of_tuples_take_the_names_that_are_given(file):
    package.save_dataset(file, [(1, 2.0, [3, 4])] * 5, names=("words", "score", "mask"))
    assert same(load_file(file), {"words": torch.full((5,), 1), "score": torch.full((5,), 2.0), "mask": torch.tensor([[3, 4]] * 5)})


@pytest.mark.parametrize("of", [lambda rows: (rows[i] for i in range(len(rows))), Stream], ids=["generator", "IterableDataset"])
def test_samples_of_unknown_number_are_written_in_pieces(of, file, columns, small_pieces):
    package.save_dataset(file, of(Rows(columns)))
    assert same(load_file(file), columns)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_sample_is_asked_for_once(file):
    """Augmentation draws another each time."""
    asked = []

    class Counted(torch.utils.data.Dataset):
        def __len__(self):
            return 5

        def __getitem__(self, i):
            asked.append(i)
            return len(asked), i

    package.save_dataset(file, Counted())
    found = load_file(file)
    assert found["y"].tolist() == [0, 1, 2, 3, 4]
    assert found["x"][0].item() == 1, "the first sample is the one whose shape was taken"


def test_a_data_set_need_not_fit_in_memory(file):
    megabytes = 64
    code = f"""if True:
        import resource, torch, onebatch
        from onebatch import datasets
        datasets.PIECE_BYTES = 2 << 20
        onebatch.save_dataset({str(file)!r}, ({{"x": torch.zeros(1 << 18)}} for _ in range(4)))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        onebatch.save_dataset({str(file)!r}, ({{"x": torch.full((1 << 18,), float(i))}} for i in range({megabytes})))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"""
    done = subprocess.run([sys.executable, "-c", code], env={**LOADER, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True, check=True)
    assert int(done.stdout) < megabytes * 1024 / 2
    assert load_file(file)["x"][:, 7].tolist() == list(range(megabytes))


def test_progress_counts_to_the_end(file, capsys):
    package.save_dataset(file, x=torch.zeros(7, 2), progress=True)
    package.save_dataset(file, iter([{"x": 1}] * 3), progress=True)
    package.save_dataset(file, x=torch.zeros(7, 2), progress=False)
    assert capsys.readouterr().err == f"\r{file}: 7 of 7 samples\n\r{file}: 3 samples\n"


Split = type("DatasetDict", (dict,), {})
REFUSED = {
    "nothing": ((), {}, "give a data set, or arrays by name"),
    "both": (([1],), {"x": [1]}, "give a data set, or arrays by name"),
    "names of arrays": ((), {"x": [1], "names": ("x",)}, "arrays have theirs"),
    "one name": (([1],), {"names": "x"}, "names=('x',)"),
    "unlike numbers": ((), {"x": torch.zeros(3), "y": torch.zeros(2)}, "x 3, y 2"),
    "a number": ((), {"x": torch.tensor(3)}, "x is Tensor: give a tensor or an array of [samples, ...]"),
    "a generator for an array": ((), {"x": (i for i in range(3))}, "x is generator"),
    "no samples": ((), {"x": []}, "no samples"),
    "an empty stream": ((iter([]),), {}, "no samples"),
    "an empty data set": (([],), {}, "no samples"),
    "text": (([{"text": "a b", "y": 1}],), {}, "'text' holds what is no tensor of numbers: str 'a b'; leave the column out by names="),
    "nothing in a sample": (([{"x": 1}, {"x": None}],), {}, "'x' holds what is no tensor of numbers: NoneType None; leave such samples out"),
    "ragged lists": ((), {"x": [[1, 2], [3]]}, "'x' … pad what is of unlike lengths to the longest"),
    "ragged samples": (([{"x": [1, 2]}, {"x": [3]}],), {}, "x: sample 1 is torch.int64 [1], sample 0 is torch.int64 [2]: pad … data.lengths"),
    "unlike types": (([{"x": 1}, {"x": 1.5}],), {}, "x: sample 1 is torch.float32 [], sample 0 is torch.int64 []: give all of them one type"),
    "no such column": (([{"x": 1}],), {"names": ("x", "z")}, "no column 'z': it has 'x'"),
    "no such array": (({"x": [1]},), {"names": ("x", "z")}, "no column 'z': there are 'x'"),
    "parts without names": (([(1, 2, 3)],), {}, "a sample has 3 parts, and the names are 2, x, y"),
    "complex": ((), {"x": torch.zeros(2, dtype=torch.complex64)}, "x is torch.complex64, which no safetensors file holds"),
    "a loader": ((torch.utils.data.DataLoader([1, 2]),), {}, "a DataLoader gives batches"),
    "several data sets": ((Split(train=[1]),), {}, "data['train']"),
    "a tuple": (((torch.zeros(2), torch.zeros(2)),), {}, "a tuple is no data set: name its parts"),
    "a number for a data set": ((3,), {}, "int is no data set"),
    "too few at once": ((Otherwise({"x": [1, 2, 3]}, -1),), {}, "__getitems__ gave 2 samples where 3 were asked for"),
    "too many at once": ((Otherwise({"x": [1, 2, 3]}, 1),), {}, "__getitems__ gave 4 samples where 3 were asked for"),
    "a word of the format": ((), {"__metadata__": [1]}, "give the column another name"),
}


@pytest.mark.parametrize("given, named, words", REFUSED.values(), ids=REFUSED)
def test_a_mistake_is_said_and_leaves_the_file_as_it_was(given, named, words, file):
    file.write_text("before")
    with pytest.raises((ValueError, TypeError)) as error:
        package.save_dataset(file, *given, **named)
    assert [word for word in words.split(" … ") if word not in str(error.value)] == [], error.value
    assert file.read_text() == "before"
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("place, words", [("nowhere/data.safetensors", "nowhere is no folder: make it first"), (".", "is a folder: name a file in it")])
def test_a_place_that_cannot_be_written_is_said_at_once(tmp_path, place, words):
    with pytest.raises(OSError, match=words):
        package.save_dataset(tmp_path / place, x=[1])


def test_rows_that_are_not_counted_by_number_are_refused(tmp_path):
    class Labelled(numpy.ndarray):
        def __getitem__(self, key):
            return super().__getitem__(slice(0, 2) if key.stop > 1 else key)

    with pytest.raises(TypeError, match="gives 2 samples"):
        package.save_dataset(tmp_path / "a.safetensors", {"x": numpy.arange(9.0).view(Labelled)})
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing(file):
    code = f"""if True:
        import resource, signal, torch, onebatch
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        onebatch.save_dataset({str(file)!r}, iter([{{"x": torch.zeros(1000)}}] * 99))"""
    done = subprocess.run([sys.executable, "-c", code], env={**LOADER, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True)
    assert "File too large" in done.stderr
    assert list(file.parent.iterdir()) == []


class Doubling(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 9)

    def forward(self, x):
        return self.fc(x.flatten(1))


def test_the_program_trains_from_it(onebatch, scratch, columns, tmp_path, small_pieces):
    package.save_dataset(tmp_path / "train.safetensors", Rows({"x": columns["x"][:50], "y": columns["y"][:50]}))
    package.export(Doubling(), columns["x"][:4], tmp_path / "model.pt2", check=False)
    scratch.config.write_text(f"""
[run]
max_steps = 2
output_dir = "{scratch.runs}"
[batch]
global_batch_size = 20
micro_batch_size = 10
[data]
kind = "safetensors"
path = "{tmp_path}/train.safetensors"
[model]
kind = "exported"
path = "{tmp_path}/model.pt2"
[optimizer]
kind = "sgd"
lr = 0.1
""")
    assert "2 steps" in onebatch.run(1, "train", scratch.config)


class ManyOfAPieceAtOnce(ManyAtOnce):
    def __getitem__(self, i):
        assert i % 100 == 0, "one by one takes ten times as long"
        return {name: column[i].tolist() for name, column in self.columns.items()}


@pytest.mark.parametrize("given", ("arrays", "rows", "many at once", "stream"))
def test_a_folder_of_pieces_is_the_same_data(tmp_path, columns, given):
    folder, some = tmp_path / "train", {name: column[:250] for name, column in columns.items()}
    if given == "many at once":
        some = {"y": some["y"]}
    data = {"arrays": some, "rows": Rows(some), "many at once": ManyOfAPieceAtOnce(some), "stream": iter([{n: c[i] for n, c in some.items()} for i in range(250)])}
    package.save_dataset(folder, data[given], samples_per_file=100)
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == ["00000.safetensors", "00001.safetensors", "00002.safetensors"]
    pieces = [load_file(file) for file in files]
    assert [len(piece["y"]) for piece in pieces] == [100, 100, 50]
    assert same({name: torch.cat([piece[name] for piece in pieces]) for name in some}, some)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_that_is_there_or_was_not_finished_is_left_alone(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(FileExistsError, match="train is there already"):
        package.save_dataset(tmp_path / "train", x=torch.zeros(3), samples_per_file=2)
    with pytest.raises(ValueError, match="'x'.*sample 3|x.*3"):
        package.save_dataset(tmp_path / "other", ({"x": torch.zeros(1 if i < 3 else 2)} for i in range(4)), samples_per_file=4)
    assert [path.name for path in tmp_path.iterdir()] == ["train"]
    for wrong in (0, 2.5, True):  # True is 1 elsewhere
        with pytest.raises(ValueError, match="whole number from 1"):
            package.save_dataset(tmp_path / "other", x=torch.zeros(3), samples_per_file=wrong)
