"""Files that are whole or not there, and the safetensors format: a length, a header in JSON, raw tensors."""
import contextlib
import json
import math
import os
import pathlib
import secrets
import struct

import torch

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32,
         "I16": torch.int16, "I8": torch.int8, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool}  # fmt: skip
WORDS = {dtype: word for word, dtype in TYPES.items()}
LENGTH_BYTES = 8


def sync(path, flags=os.O_RDONLY):
    opened = os.open(path, flags)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def replacing(path):
    """A path to write to, that takes the place of `path` once all is written; after an error nothing has changed."""
    path = pathlib.Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} is no folder: make it first, or write elsewhere")
    # A name that no other process takes, with the same ending.
    partial = path.with_name(f".{path.stem}.{secrets.token_hex(4)}.partial{path.suffix}")
    try:
        yield partial
        sync(partial)
        partial.replace(path)
        sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def bytes_of(tensor):
    """In the order of its elements. By way of a buffer of ours: NumPy need not be there."""
    raw = bytearray(tensor.nbytes)
    if raw:
        torch.frombuffer(raw, dtype=tensor.dtype).copy_(tensor.detach().reshape(-1))
    return raw


class TensorFile:
    """A safetensors file of known types and shapes, written in any order of rows. `columns` is {name: (dtype, shape)}."""

    def __init__(self, path, columns):
        self.columns, self.places = columns, {}
        header, size = self.layout()
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % LENGTH_BYTES)
        self.begin = LENGTH_BYTES + len(text)
        self.file = open(path, "wb")
        self.file.write(struct.pack("<Q", len(text)) + text)
        self.file.truncate(self.begin + size)

    def layout(self):
        """The header, and how many bytes follow it. Wide types come first: so all of them are aligned."""
        header, offset = {}, 0
        for name, (dtype, shape) in sorted(self.columns.items(), key=lambda column: -column[1][0].itemsize):
            if dtype not in WORDS:
                raise TypeError(f"{name} is {dtype}, which no safetensors file holds: convert it first, as by .to(torch.float32)")
            if name == "__metadata__":
                raise ValueError("__metadata__ is a word of the format: give the column another name")
            end = offset + dtype.itemsize * math.prod(shape)
            header[name] = {"dtype": WORDS[dtype], "shape": list(shape), "data_offsets": [offset, end]}
            self.places[name], offset = offset, end
        return header, offset

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.file.close()

    def write(self, name, row, tensor):
        """Rows of one tensor, from `row` on."""
        dtype, shape = self.columns[name]
        if tensor.dtype != dtype or tuple(tensor.shape[1:]) != tuple(shape[1:]):
            raise ValueError(unlike(name, row, tensor.dtype, tensor.shape[1:], dtype, shape[1:]))
        self.write_at(name, row * dtype.itemsize * math.prod(shape[1:]), tensor)

    def write_at(self, name, offset, tensor):
        self.file.seek(self.begin + self.places[name] + offset)
        self.file.write(bytes_of(tensor))


def unlike(name, row, dtype, shape, first_dtype, first_shape):
    """What is said of a sample that no tensor can hold together with the first."""
    what = f"{name}: sample {row} is {dtype} {list(shape)}, sample 0 is {first_dtype} {list(first_shape)}"
    if dtype != first_dtype:
        return f"{what}: give all of them one type, as by .to({first_dtype})"
    return f"{what}: pad what is of unlike lengths to the longest, and add a column with the lengths (data.lengths)"


def write_tensors(path, tensors):
    """{name: tensor}, all at once."""
    with replacing(path) as partial, TensorFile(partial, {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}) as file:
        for name, tensor in tensors.items():
            file.write_at(name, 0, tensor)


def read_header(file, path):
    """{name: entry}, and where the tensors begin."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(LENGTH_BYTES)
    length = struct.unpack("<Q", start)[0] if len(start) == LENGTH_BYTES else size
    if length > size - LENGTH_BYTES:
        raise ValueError(f"{path} is no safetensors file, or was cut: it has {size} bytes")
    try:
        header = json.loads(file.read(length))
    except ValueError:
        raise ValueError(f"{path} is no safetensors file: its header is no JSON") from None
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    for name, entry in entries.items():
        check_entry(f"{path}: the tensor {name}", entry, size - LENGTH_BYTES - length)
    return entries, LENGTH_BYTES + length


def check_entry(what, entry, size):
    first, last = entry["data_offsets"]
    if entry["dtype"] not in TYPES:
        raise ValueError(f"{what} is of the type {entry['dtype']}, which is not read")
    if not 0 <= first <= last <= size or last - first != TYPES[entry["dtype"]].itemsize * math.prod(entry["shape"]):
        raise ValueError(f"{what} was cut off, or is not of the size that it is said to be")


def read_tensors(path):
    """{name: tensor}, each in memory of its own."""
    with open(path, "rb") as file:
        entries, begin = read_header(file, path)
        tensors = {}
        for name, entry in entries.items():
            first, last = entry["data_offsets"]
            raw = bytearray(last - first)
            file.seek(begin + first)
            if file.readinto(raw) != len(raw):
                raise ValueError(f"{path}: the tensor {name} was cut off")
            dtype = TYPES[entry["dtype"]]
            tensors[name] = (torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)).reshape(entry["shape"])
    return tensors
