"""Tables on disk, in parts that are read by themselves: Parquet, Arrow (as Hugging Face's save_to_disk leaves it), CSV, JSON lines, and plain text."""
import dataclasses
import glob
import json
import os
import pathlib
import re

from .refusals import ConversionError

PARTS = {".parquet": "parquet", ".arrow": "arrow", ".csv": "csv", ".jsonl": "json lines", ".txt": "text"}
PACKED = (".gz", ".bz2", ".xz", ".zst", ".lz4")
TEXT = "text"  # the column that plain text files have
ROWS_IN_A_PIECE = 8192
TEXT_IN_A_PIECE = 1 << 26  # bytes; more, where one file has more
LEAST_BLOCK = 1 << 20  # bytes
MOST_IN_A_BLOCK = (1 << 31) - 1
NAMES_SHOWN = 8  # of a first line


def arrow():
    try:
        import pyarrow
    except ImportError:
        raise ConversionError("Parquet, Arrow, CSV and JSON lines are read by pyarrow, which is not here: pip install pyarrow") from None
    return pyarrow


@dataclasses.dataclass(frozen=True)
class Unit:
    """Rows that are read and written together: of Parquet some row groups, of Arrow some record batches, of text some files, else a whole file."""

    number: int
    file: str
    format: str
    first: int = 0  # row group or record batch
    end: int = 0
    more: tuple = ()  # files after the first


def refuse_several_sets(source, files):
    """A folder of a data set's training and test files is two data sets."""
    held = {"val", "valid", "validation", "validate", "held", "heldout", "dev", "test", "eval"}
    words = {file: set(re.findall("[a-z]+", str(file).lower())) for file in files}
    train = next((file for file in files if words[file] & {"train", "training"} and not words[file] & held), None)
    other = next((file for file in files if words[file] & held and not words[file] & {"train", "training"}), None)
    if train is not None and other is not None:
        pattern = pathlib.Path(source) / train.with_name(re.match("[A-Za-z]*", train.name).group() + "*" + train.suffix)
        raise ConversionError(f"{source} holds files to train with ({train}) and others ({other}), which would become one data set: name those of one by a pattern, as in \"{pattern}\"")


def tables_in(folder):
    """All of the folder and those in it. Of what save_to_disk has written, what it says that it has: an earlier, larger one's files may lie there still."""
    if saved := saved_files(folder):
        return saved
    there = [file for file in folder.rglob("*") if not file.name.startswith(".") and not (file.name.startswith("cache-") and file.suffix == ".arrow")]
    found = sorted(file for file in there if file.suffix in PARTS)
    formats = {file.suffix for file in found}
    for file in there:
        suffix = pathlib.Path(file.stem).suffix if file.suffix in PACKED else file.suffix
        if file.suffix not in PARTS and suffix.lower() in formats and file.is_file():
            raise ConversionError(f"{file} would be left out: unpack it, and let its name end in {suffix.lower()}; or name the files to take by a pattern")
    return found


def saved_files(folder):
    """As the state.json of save_to_disk names them; none where that is none of its."""
    try:
        return [folder / file["filename"] for file in json.loads((folder / "state.json").read_text())["_data_files"]]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def files_of(source, split=None):
    """The files of a folder, a file or a pattern, sorted by name; all of one format."""
    path = pathlib.Path(source)
    if (path / "dataset_dict.json").is_file():
        splits = json.loads((path / "dataset_dict.json").read_text())["splits"]
        if split not in splits:
            raise ConversionError(f"{source} holds several data sets: write --split {' or '.join(splits)}")
        path = path / split
    elif split is not None:
        raise ConversionError(f"--split {split}: {source} is no folder in which save_to_disk has written several data sets: name the files of one by a pattern, "
                              f"as in \"{source}/{split}*.parquet\"")  # fmt: skip
    if path.is_dir():
        found = tables_in(path)
    elif path.is_file():
        found = [path]
    else:
        found = sorted(pathlib.Path(name) for name in glob.glob(str(source), recursive=True))
    if path.is_dir():
        refuse_several_sets(source, [file.relative_to(path) for file in found])
    formats = {PARTS.get(file.suffix) for file in found}
    if not found or None in formats:
        raise ConversionError(f"{source}: there is no file of {', '.join(PARTS)}: name a file, a folder of them or a pattern")
    if len(formats) > 1:
        raise ConversionError(f"{source} holds files of several formats ({', '.join(sorted(formats))}): name those of one by a pattern")
    return found, formats.pop()


def units_of(source, split=None, rows=ROWS_IN_A_PIECE):
    """The same ones each time, as long as the files are the same."""
    files, kind = files_of(source, split)
    if kind == "text":
        names = list(map(str, files))
        weights = [max(1, rows * os.stat(name).st_size // TEXT_IN_A_PIECE) for name in names]
        return [Unit(number, names[first], kind, more=tuple(names[first + 1 : end])) for number, (first, end) in enumerate(grouped(weights, rows))]
    parts = {"parquet": parquet_parts, "arrow": arrow_parts}.get(kind, lambda _file, _rows: [(0, 0)])
    places = [(str(file), kind, first, end) for file in files for first, end in parts(file, rows)]
    return [Unit(number, *place) for number, place in enumerate(places)]


def grouped(counts, rows):
    """Consecutive ones, until they hold so many rows: [(first, end), …]."""
    groups, first, held = [], 0, 0
    for i, count in enumerate(counts):
        held += count
        if held >= rows:
            groups.append((first, i + 1))
            first, held = i + 1, 0
    return groups + ([(first, len(counts))] if held > 0 else [])


def parquet_parts(file, rows):
    arrow()
    from pyarrow import parquet

    with reading(file):
        with parquet.ParquetFile(file) as opened:
            return grouped([opened.metadata.row_group(i).num_rows for i in range(opened.num_row_groups)], rows)


def arrow_parts(file, rows):
    with reading(file):
        return grouped([batch.num_rows for batch in batches(file)], rows)


def batches(file):
    """Of a stream, as Hugging Face writes it, or of a file of Arrow's. Mapped: what is passed over is not read."""
    pa = arrow()
    with pa.memory_map(str(file)) as mapped:
        try:
            reader = pa.ipc.open_file(mapped)
        except pa.ArrowInvalid:
            mapped.seek(0)
            yield from pa.ipc.open_stream(mapped)
        else:
            yield from (reader.get_batch(i) for i in range(reader.num_record_batches))


class reading:
    """Whatever a damaged file makes a reader throw names the file."""

    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self

    def __exit__(self, _type, error, _trace):
        if error is not None and not isinstance(error, ConversionError) and isinstance(error, (OSError, ValueError)):
            raise ConversionError(f"{self.file} cannot be read: {error}") from error


def is_nested(kind):
    """Lists, structures and the like."""
    return arrow().types.is_nested(kind)


def missing_in_csv():
    """What stands for no value in a column of numbers: nothing, NA, null, …"""
    arrow()
    from pyarrow import csv

    return set(csv.ConvertOptions().null_values)


def read_unit(unit, columns=None, as_text=""):
    """A table of Arrow's. `as_text`: a column of which CSV keeps the spelling."""
    pa = arrow()
    with reading(unit.file):
        table = read_table(pa, unit, columns, as_text)
    if unit.format == "csv":
        refuse_without_header(unit.file, table.column_names)
    if repeated := [name for name in columns or table.column_names if table.column_names.count(name) > 1]:
        raise ConversionError(f"{unit.file} has {table.column_names.count(repeated[0])} columns {repeated[0]!r}: give each column a name of its own")
    missing = [name for name in columns or () if name not in table.column_names]
    if missing:
        raise ConversionError(f"{unit.file} has no column {missing[0]!r}: it has {', '.join(map(repr, table.column_names))}")
    return table.select(columns) if columns else table


def refuse_without_header(file, names):
    """A CSV's first row would be lost: names that are numbers are one, but for those that pandas gives an array's columns."""
    if not all(map(is_number, names)) or names == [str(i) for i in range(len(names))]:
        return
    shown = ",".join(names[:NAMES_SHOWN]) + (",…" if len(names) > NAMES_SHOWN else "")
    raise ConversionError(f"{file}: its first line, {shown}, is to name the columns: write a line of names before it")


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def block_of(file):
    """As much as readers take at once: a whole file, as no row may be longer."""
    return min(max(os.stat(file).st_size, LEAST_BLOCK), MOST_IN_A_BLOCK)


def text_of(file):
    with reading(file):
        return pathlib.Path(file).read_bytes().decode("utf-8")


def read_table(pa, unit, columns, as_text):
    if unit.format == "text":
        return pa.table({TEXT: pa.array([text_of(name) for name in (unit.file, *unit.more)], pa.large_string())})
    if unit.format == "csv":
        from pyarrow import csv

        return csv.read_csv(unit.file, csv.ReadOptions(block_size=block_of(unit.file)),
                            convert_options=csv.ConvertOptions(column_types={as_text: pa.string()} if as_text else {}))  # fmt: skip
    if unit.format == "json lines":
        from pyarrow import json as json_lines

        return json_lines.read_json(unit.file, json_lines.ReadOptions(block_size=block_of(unit.file)))
    if unit.format == "parquet":
        from pyarrow import parquet

        with parquet.ParquetFile(unit.file) as opened:
            known = [name for name in columns or () if name in opened.schema_arrow.names]
            return opened.read_row_groups(range(unit.first, unit.end), columns=known if columns and len(known) == len(columns) else None)
    found = [batch for i, batch in enumerate(batches(unit.file)) if unit.first <= i < unit.end]
    return pa.Table.from_batches(found)
