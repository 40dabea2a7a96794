"""Data for the trainer: one safetensors file, a tensor for each column, whose first dimension counts samples."""
import contextlib
import itertools
import pathlib
import secrets
import shutil
import sys
import time

import torch

from .files import TensorFile, replacing, unlike
from .samples import as_tensor, columns_of, in_pieces, in_turn

PIECE_BYTES = 16 << 20
MOST_IN_A_PIECE = 4096  # samples
SEVERAL = ("DatasetDict", "IterableDatasetDict")  # of Hugging Face


class Progress:
    """A line on standard error that counts; `samples` is None where nobody knows how many there are."""

    def __init__(self, path, samples, shown):
        self.path, self.of, self.shown, self.said, self.done = path, f" of {samples}" if samples else "", shown, time.monotonic(), 0

    def add(self, samples):
        self.done += samples
        if self.shown and time.monotonic() - self.said >= 0.5:
            self.say("")

    def say(self, end):
        self.said = time.monotonic()
        print(f"\r{self.path}: {self.done}{self.of} samples", end=end, file=sys.stderr, flush=True)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        if self.shown:
            self.say("\n")


def stacked(name, tensors, first, begin):
    """Rows of a column: all are to be as the first one."""
    for i, tensor in enumerate(tensors):
        if tensor.dtype != first.dtype or tensor.shape != first.shape:
            raise ValueError(unlike(name, begin + i, tensor.dtype, tensor.shape, first.dtype, first.shape))
    return torch.stack(tensors)


class Reader:
    """The samples of a data set as tensors of several rows, {name: tensor}, a piece at a time."""

    def __init__(self, dataset, names):
        self.samples = len(dataset) if by_number(dataset) else None
        if self.samples == 0:
            raise ValueError("the data set has no samples")
        # The first one says how many make a piece. It is asked for once: another time it may be another, by augmentation or from a stream.
        if self.samples is None:
            stream = iter(dataset)
            head = next(stream, self)
            if head is self:
                raise ValueError("the data set has no samples")
        else:
            head = dataset[0]
        self.first = columns_of(head, names)
        self.names = list(self.first)
        size = max(1, min(MOST_IN_A_PIECE, PIECE_BYTES // max(1, sum(tensor.nbytes for tensor in self.first.values()))))
        self.rest = in_turn(itertools.chain([head], stream), size) if self.samples is None else in_pieces(dataset, size)

    def pieces(self):
        begin = 0
        for piece in self.rest:
            rows = [self.first if begin + i == 0 else columns_of(sample, self.names) for i, sample in enumerate(piece)]
            yield begin, {name: stacked(name, [row[name] for row in rows], self.first[name], begin) for name in self.names}
            begin += len(rows)


def by_number(dataset):
    return not isinstance(dataset, torch.utils.data.IterableDataset) and hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")


def write_known(path, reader, progress):
    """A data set of known length goes to its place at once."""
    columns = {name: (tensor.dtype, (reader.samples, *tensor.shape)) for name, tensor in reader.first.items()}
    with TensorFile(path, columns) as file:
        for begin, piece in reader.pieces():
            for name, rows in piece.items():
                file.write(name, begin, rows)
            progress.add(len(rows))


def write_stream(path, reader, progress):
    """One of unknown length: a file for each column beside it, which are joined in the end."""
    parts = {name: path.with_name(f"{path.name}.column-{i}") for i, name in enumerate(reader.names)}
    samples = 0
    try:
        with contextlib.ExitStack() as stack:
            files = {}
            for name, part in parts.items():
                files[name] = stack.enter_context(TensorFile(part, {name: (reader.first[name].dtype, (0, *reader.first[name].shape))}))
            for begin, piece in reader.pieces():
                for name, rows in piece.items():
                    files[name].write(name, begin, rows)
                samples = begin + len(rows)
                progress.add(len(rows))
            begins = {name: file.begin for name, file in files.items()}
        join(path, reader.first, samples, parts, begins)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def join(path, first, samples, parts, begins):
    with TensorFile(path, {name: (tensor.dtype, (samples, *tensor.shape)) for name, tensor in first.items()}) as file:
        for name, part in parts.items():
            with open(part, "rb") as column:
                column.seek(begins[name])
                file.file.seek(file.begin + file.places[name])
                shutil.copyfileobj(column, file.file, 1 << 20)
            part.unlink()


def write_samples(path, dataset, names, shown):
    reader = Reader(dataset, names)
    with replacing(path) as partial, Progress(path, reader.samples, shown) as progress:
        (write_stream if reader.samples is None else write_known)(partial, reader, progress)


def lengths_of(arrays):
    counts = {}
    for name, array in arrays.items():
        if not by_number(array) or getattr(array, "shape", None) == ():
            raise TypeError(f"{name} is {type(array).__name__}: give a tensor or an array of [samples, ...]; what gives samples one after "
                            "another is a data set, as in save_dataset(path, samples)")  # fmt: skip
        counts[name] = len(array)
    if len(set(counts.values())) != 1:
        raise ValueError("columns have unlike numbers of samples: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    return next(iter(counts.values()))


def whole(arrays):
    """Lists become tensors as a whole: one number of a list may have another type than the first, as in [1, 2.5]."""
    return {name: as_tensor(name, array) if isinstance(array, (list, tuple)) else array for name, array in arrays.items()}


def write_arrays(path, arrays, shown):
    samples = lengths_of(arrays)
    if samples == 0:
        raise ValueError("there are no samples")
    firsts = {name: as_tensor(name, array[:1]) for name, array in arrays.items()}
    columns = {name: (first.dtype, (samples, *first.shape[1:])) for name, first in firsts.items()}
    piece = max(1, PIECE_BYTES // max(1, sum(first.nbytes for first in firsts.values())))
    with replacing(path) as partial, TensorFile(partial, columns) as file, Progress(path, samples, shown) as progress:
        for begin in range(0, samples, piece):
            end = min(begin + piece, samples)
            for name, array in arrays.items():
                rows = as_tensor(name, array[begin:end])
                if len(rows) != end - begin:
                    raise TypeError(f"{name}[{begin}:{end}] gives {len(rows)} samples, as where rows have labels instead of numbers: give a tensor or an array, as by .to_numpy()")
                file.write(name, begin, rows)
            progress.add(end - begin)


class Part:
    """Some samples of a data set by number."""

    def __init__(self, dataset, begin, end):
        self.dataset, self.begin, self.end = dataset, begin, end
        if hasattr(dataset, "__getitems__"):
            self.__getitems__ = lambda numbers: dataset.__getitems__([begin + i for i in numbers])

    def __len__(self):
        return self.end - self.begin

    def __getitem__(self, i):
        return self.dataset[self.begin + i]


def parts_of(dataset, size):
    """Data sets of at most `size` samples, one after another."""
    if by_number(dataset):
        yield from (Part(dataset, begin, min(begin + size, len(dataset))) for begin in range(0, len(dataset), size))
        return
    stream = iter(dataset)
    for head in stream:
        yield itertools.chain([head], itertools.islice(stream, size - 1))


def write_folder(path, dataset, names, arrays, size, shown):
    """A file for every `size` samples, numbered from 0, in a folder that is there once all are written."""
    folder = pathlib.Path(path)
    if folder.exists():
        raise FileExistsError(f"{folder} is there already: remove it first, or write elsewhere")
    partial = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.partial")
    partial.mkdir()
    try:
        files = (partial / f"{i:05}.safetensors" for i in itertools.count())
        if dataset is None:
            samples = lengths_of(arrays)
            for begin in range(0, samples, size):
                write_arrays(next(files), {name: array[begin : begin + size] for name, array in arrays.items()}, shown)
        else:
            for part in parts_of(dataset, size):
                write_samples(next(files), part, names, shown)
        if not any(partial.iterdir()):
            raise ValueError("there are no samples")
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial)
        raise


def holds_columns(dataset):
    """A dictionary, what np.load() gives of an .npz file, a tokenizer's output, a table of pandas: columns by name, not samples by number."""
    return callable(getattr(dataset, "keys", None)) and not isinstance(dataset, torch.utils.data.Dataset) and type(dataset).__name__ not in SEVERAL


def check_dataset(dataset):
    """What looks like a data set and is none."""
    if isinstance(dataset, torch.utils.data.DataLoader):
        raise TypeError("a DataLoader gives batches: give its data set, as in save_dataset(path, loader.dataset)")
    if type(dataset).__name__ in SEVERAL:
        raise TypeError(f"there are several data sets here: give one of them, as in save_dataset(path, data[{next(iter(dataset))!r}])")
    if isinstance(dataset, tuple):
        raise TypeError("a tuple is no data set: name its parts, as in save_dataset(path, x=images, y=labels)")
    if not by_number(dataset) and not hasattr(dataset, "__iter__"):
        raise TypeError(f"{type(dataset).__name__} is no data set: it has neither samples by number and a length, nor gives one after another")


def save_dataset(path, dataset=None, *, names=None, progress=None, samples_per_file=None, **arrays):
    """Writes data for data.kind = "safetensors", in pieces: they need not fit in memory.

    Either arrays by name, or a dictionary of them or what is like one, as numpy.load("data.npz") (tensors, NumPy arrays, memory-mapped ones
    too), [samples, ...] each; or a `dataset`: a PyTorch Dataset, a Hugging Face one, a list or a generator, whose samples are tuples (named "x" and "y", or by `names`) or dictionaries
    (all columns, or those of `names`). Where nobody knows how many there are, columns lie beside the file until all are written, which takes
    as much room again. `progress`: whether it is shown on standard error; None: where that is a terminal.

    With `samples_per_file` the path is a folder, of a file for so many samples each, that data.path takes as it is.

    The file or folder is there once it is whole. Raises ValueError or TypeError, which name the column and say what to do.
    """
    shown = sys.stderr.isatty() if progress is None else progress
    if (dataset is None) == (not arrays):
        raise ValueError("give a data set, or arrays by name as in save_dataset(path, x=images, y=labels)")
    if isinstance(names, str):
        raise ValueError(f"names are several, as in names=({names!r},)")
    if holds_columns(dataset):
        if missing := [name for name in names or () if name not in dataset.keys()]:
            raise ValueError(f"there is no column {missing[0]!r}: there are {', '.join(map(repr, dataset.keys()))}")
        dataset, arrays = None, {name: dataset[name] for name in names or dataset.keys()}
    elif names is not None and dataset is None:
        raise ValueError("names are a data set's: arrays have theirs, as in x=images")
    arrays = whole(arrays)
    if dataset is not None:
        check_dataset(dataset)
    if samples_per_file is not None:
        if type(samples_per_file) is not int or samples_per_file < 1:
            raise ValueError("samples_per_file is a whole number from 1")
        write_folder(path, dataset, names, arrays, samples_per_file, shown)
    elif dataset is None:
        write_arrays(path, arrays, shown)
    else:
        write_samples(path, dataset, names, shown)
