"""Tables become data for the trainer: safetensors pieces, token files or class folders of images. A conversion that was killed goes on."""
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import multiprocessing
import os
import pathlib
import re
import sys
import time
import warnings

from .classes import classes_as_in, classes_of
from .files import TYPES, read_header, replacing
from .refusals import ConversionError
from .tables import ROWS_IN_A_PIECE, read_unit, units_of
from .written import WRITERS

STATE = ".convert"  # files of the target that begin so know what is done; a folder would be a class of images


@dataclasses.dataclass(frozen=True)
class Wishes:
    """What is to be made of the columns."""

    to: str  # "tensors", "tokens" or "images"
    columns: tuple = ()  # tensors: these; else all
    classes: str = ""  # the column of which class indices, or folders, are made
    pad: int = 0  # tensors: lists of unlike lengths are filled up to so many
    packed: bool = False  # tensors: lists lie one after another, and "offsets" says where each begins
    text: str = "text"  # tokens: the column
    tokenizer: str = "bytes"  # tokens: a tokenizer.json, its folder, a name on the Hugging Face hub, or "bytes"
    separator: str = ""  # tokens: after each row, a number or a token's text
    image: str = "image"  # images: the column
    pad_value: tuple = ()  # tensors: (column, number) pairs, of lists that are filled up with something else than 0


# What each option is of; those of every target do not stand here.
OPTIONS = {"--columns": ("tensors",), "--classes": ("tensors", "images"), "--classes-of": ("tensors", "images"), "--pad": ("tensors",), "--pad-value": ("tensors",),
           "--packed": ("tensors",), "--text": ("tokens",), "--tokenizer": ("tokens",), "--separator": ("tokens",), "--image": ("images",)}  # fmt: skip


def check_options(wishes, like):
    """An option of another target would change nothing. Raises ConversionError."""
    given = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(wishes) if getattr(wishes, field.name) != field.default}
    for option, targets in OPTIONS.items():
        if wishes.to not in targets and (option in given or (option == "--classes-of" and like)):
            raise ConversionError(f"{option} is of --to {' and '.join(targets)}, and changes nothing of --to {wishes.to}: leave it out")


def digest_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest() if hasattr(hashlib, "file_digest") else hashlib.blake2b(file.read()).hexdigest()


class State:
    """Which pieces are written, and what they are: a small file for each."""

    def __init__(self, target):
        self.target, self.known = pathlib.Path(target), pathlib.Path(target) / f"{STATE}-plan.json"

    def begin(self, plan):
        """Refuses a folder that holds something else; clears what a killed conversion left half written."""
        if self.target.exists() and not self.target.is_dir():
            raise ConversionError(f"{self.target} is a file: name a folder")
        if self.known.is_file() and json.loads(self.known.read_text()) != plan:
            raise ConversionError(f"{self.target} holds another conversion, or its source has changed: name another folder, or remove this one")
        self.target.mkdir(parents=True, exist_ok=True)
        half_written = f".{self.known.stem}."  # where a conversion was killed at its very start
        if not self.known.is_file() and not all(path.name.startswith(half_written) for path in self.target.iterdir()):
            raise ConversionError(f"{self.target} is not empty, and no conversion of ours: name another folder")
        for partial in self.target.rglob(".*.partial*"):
            partial.unlink()
        write_json(self.known, plan)

    def place(self, number):
        return self.target / f"{STATE}-piece-{number:05}.json"

    def finished(self, number):
        """What was written, where all of it is still there as it was; else None."""
        try:
            piece = json.loads(self.place(number).read_text())
            whole = all((self.target / name).stat().st_size == size and digest_of(self.target / name) == digest for name, size, digest in piece["files"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return piece if whole else None

    def finish(self, number, files, rows):
        piece = {"rows": rows, "files": [(str(file.relative_to(self.target)), file.stat().st_size, digest_of(file)) for file in files]}
        write_json(self.place(number), piece)
        return piece


def write_json(path, value):
    with replacing(path) as partial:
        partial.write_text(json.dumps(value, indent=1, default=str) + "\n")


def work(unit, target, wishes, classes):
    """In a process of its own: one unit, unless it is written. Returns how many rows it has, whether it was there, the unit and its tensors."""
    state = State(target)
    piece = state.finished(unit.number)
    if piece is not None:
        return piece["rows"], True, unit, tensors_of(piece, state.target)
    writer = WRITERS[wishes.to]
    table = read_unit(unit, writer.columns(wishes), as_text=wishes.classes)
    files = writer.write(table, unit, pathlib.Path(target), wishes, classes)
    piece = state.finish(unit.number, files, table.num_rows)
    return piece["rows"], False, unit, tensors_of(piece, state.target)


def tensors_of(piece, target):
    """{name: (type, shape of a row)} of a piece of tensors, as its file says; also where a conversion goes on."""
    found = {}
    for name, _size, _digest in piece["files"]:
        if name.endswith(".safetensors"):
            with open(target / name, "rb") as file:
                entries, _begin = read_header(file, target / name)
            found.update((column, (TYPES[entry["dtype"]], entry["shape"][1:])) for column, entry in entries.items())
    return found


def check_alike(unit, tensors, other, others):
    """Pieces of one data set have the same tensors. Raises ConversionError with both files."""
    if unit.number < other.number:
        unit, tensors, other, others = other, others, unit, tensors
    for name in (*others, *tensors):
        ours, theirs = tensors.get(name), others.get(name)
        if ours != theirs:
            raise ConversionError(f"{unit.file}: the column {name!r} is {kind_of(ours)} in piece {unit.number}, and {kind_of(theirs)} in piece {other.number}, of {other.file}: "
                                  f"{advice_on(ours, theirs)}, or leave it out by --columns")  # fmt: skip


def kind_of(tensor):
    return f"{tensor[0]} {tensor[1]}" if tensor else "missing"


def advice_on(ours, theirs):
    if not ours or not theirs:
        return "give all files the same columns"
    if ours[0] != theirs[0]:
        return "give all files one type, as 1.0 in place of 1 in a CSV where another has fractions"
    return "fill lists up by --pad, keep images of several sizes as they are by --to images"


class Said:
    """A line on standard error that counts."""

    def __init__(self, target, pieces, shown):
        self.target, self.pieces, self.shown, self.begin = target, pieces, shown, time.monotonic()
        self.done = self.rows = self.kept = 0

    def add(self, rows, kept):
        self.done, self.rows, self.kept = self.done + 1, self.rows + rows, self.kept + kept
        if self.shown:
            print(f"\r{self.target}: {self.done} of {self.pieces} pieces, {self.rows} rows", end="", file=sys.stderr, flush=True)

    def end(self):
        if self.shown:
            print(file=sys.stderr)


def plan_of(source, units, wishes, rows):
    """What a conversion depends on: another plan's pieces are not its own."""
    files = {file: [os.stat(file).st_size, os.stat(file).st_mtime_ns] for unit in units for file in (unit.file, *unit.more)}
    plan = {"source": str(source), "files": files, "rows": rows, "pieces": len(units), **dataclasses.asdict(wishes)}
    if not wishes.pad_value:  # what an earlier version has begun has none
        del plan["pad_value"]
    return json.loads(json.dumps(plan))


def warn_of_labels(tensors, wishes):
    """Who fills up several columns by the same number, and has chosen none, may have labels among them."""
    lists = [(name, kind) for name, (kind, shape) in tensors.items() if wishes.pad and shape[:1] == [wishes.pad] and f"{name}_lengths" in tensors]
    whole = [(name, kind) for name, kind in lists if not kind.is_floating_point and kind != TYPES["BOOL"]]
    if wishes.pad_value or len(whole) < 2:
        return
    *names, last = (repr(name) for name, _kind in whole)
    signed = sorted((name for name, kind in whole if kind.is_signed), key=lambda name: re.search("label|tag|target|class", name.lower()) is not None)
    advice = f"--pad-value {signed[-1]}=-100, or --packed" if signed else "--packed"
    warnings.warn(f"{', '.join(names)} and {last} were filled up with 0: where one holds labels, 0 counts as class 0; write {advice}", stacklevel=3)


def convert(source, target, wishes, *, split=None, workers=None, rows=ROWS_IN_A_PIECE, progress=None, like=None):
    """Converts, or goes on with it; with the classes of the folder `like`. Returns what convert.json says. Raises ConversionError."""
    check_options(wishes, like)
    units = units_of(source, split, rows)
    writer = WRITERS[wishes.to]
    writer.check(wishes)
    if like and not wishes.classes:
        raise ConversionError("--classes-of says which classes a column has: write --classes COLUMN, too")
    classes = None
    if wishes.classes:
        classes = classes_as_in(like, units, wishes.classes) if like else classes_of(units, wishes.classes)
    State(target).begin({**plan_of(source, units, wishes, rows), **writer.plan(wishes, classes)})
    said = Said(target, len(units), sys.stderr.isatty() if progress is None else progress)
    workers = max(1, min(workers or os.cpu_count() or 1, len(units)))
    first = None
    try:
        with contextlib.closing(results(units, target, wishes, classes, workers)) as pieces:
            for done_rows, kept, unit, tensors in pieces:
                if first is None:
                    first = (unit, tensors)
                    warn_of_labels(tensors, wishes)
                check_alike(unit, tensors, *first)
                said.add(done_rows, kept)
    finally:
        said.end()
    writer.end(pathlib.Path(target), classes)
    report = {"source": str(source), "to": wishes.to, "pieces": said.done, "rows": said.rows, "kept": said.kept, "classes": classes and classes.values,
              **writer.facts(wishes)}  # fmt: skip
    write_json(pathlib.Path(target) / "convert.json", report)
    return report


def results(units, target, wishes, classes, workers):
    if workers == 1:
        yield from (work(unit, target, wishes, classes) for unit in units)
        return
    # Not forked: threads of PyTorch and Arrow do not live on in a copy of the process.
    with concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(work, unit, target, wishes, classes) for unit in units]
        try:
            for future in concurrent.futures.as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
