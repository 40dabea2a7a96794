"""Samples as tensors with names: what a data set gives, and what is said where that cannot be written down."""
import torch


class Unreadable(ValueError):
    pass


def as_tensor(name, value):
    """One value of a column, or several."""
    try:
        if isinstance(value, torch.Tensor):
            return value.detach().cpu()
        if isinstance(value, float) and not hasattr(value, "__array__"):  # NumPy's float64 is one of Python, too
            return torch.tensor(value, dtype=torch.float32)
        if isinstance(value, (list, tuple)) and any(isinstance(part, torch.Tensor) for part in value):
            return torch.stack([as_tensor(name, part) for part in value])
        if hasattr(value, "__array__"):
            import numpy
            return torch.from_numpy(numpy.array(value))  # a copy: what is mapped may be read-only
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise Unreadable(f"the column {name!r} holds what is no tensor of numbers: {described(value)}; {advice_on(value)}") from error


def described(value):
    if isinstance(value, (list, tuple)):
        kinds = sorted({type(part).__name__ for part in value})
        return f"{type(value).__name__} of {len(value)} ({', '.join(kinds)})"
    return f"{type(value).__name__} {value!r}"[:80]


def advice_on(value):
    if value is None:
        return "leave such samples out, or write a number for what is missing"
    if isinstance(value, str) or (isinstance(value, (list, tuple)) and value and isinstance(value[0], str)):
        return "leave the column out by names=(…) of those to write, or make tokens of the text first"
    if isinstance(value, (list, tuple)):
        return "pad what is of unlike lengths to the longest, and add a column with the lengths (data.lengths)"
    return "give tensors, NumPy arrays or numbers, or leave the column out by names=(…) of those to write"


def columns_of(sample, names):
    """{name: tensor} of one sample of a data set: a dictionary, or parts in order."""
    if hasattr(sample, "keys"):
        missing = [name for name in names or () if name not in sample.keys()]
        if missing:
            raise Unreadable(f"the data set has no column {missing[0]!r}: it has {', '.join(map(repr, sample.keys()))}")
        return {name: as_tensor(name, sample[name]) for name in (names or sample.keys())}
    parts = sample if isinstance(sample, (tuple, list)) else (sample,)
    names = names or ("x", "y")[:len(parts)]
    if len(names) != len(parts):
        raise Unreadable(f"a sample has {len(parts)} parts, and the names are {len(names)}, {', '.join(names)}: name each of them, "
                         "as in names=(\"words\", \"mask\", \"y\")")  # fmt: skip
    return {name: as_tensor(name, part) for name, part in zip(names, parts)}


def in_pieces(dataset, size):
    """Lists of samples, by number: what knows how to give many at once (Hugging Face, `__getitems__`) is asked for them."""
    for begin in range(0, len(dataset), size):
        numbers = list(range(begin, min(begin + size, len(dataset))))
        many = getattr(dataset, "__getitems__", None)
        piece = list(many(numbers)) if many else [dataset[i] for i in numbers]
        if len(piece) != len(numbers):
            raise Unreadable(f"the data set's __getitems__ gave {len(piece)} samples where {len(numbers)} were asked for: give one for each number")
        yield piece


def in_turn(samples, size):
    """Lists of samples of anything that gives one after another."""
    piece = []
    for sample in samples:
        piece.append(sample)
        if len(piece) == size:
            yield piece
            piece = []
    if piece:
        yield piece
