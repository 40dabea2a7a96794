"""Which class index stands for which value of a column: of the values sorted, of a description of them, or as a conversion before has it."""
import dataclasses
import json
import math
import pathlib

from .refusals import ConversionError
from .tables import arrow, is_nested, missing_in_csv, read_unit

NAMED = 10  # in a sentence


@dataclasses.dataclass(frozen=True)
class Classes:
    values: list  # of index 0, 1, …
    names: list | None = None  # what the column's numbers stand for, where Hugging Face describes that

    def indices(self, table, unit, column, others=False):
        """Of each row of a piece. `others`: numbers that no description has stay as they are, as -1 for no label."""
        names = names_in(table, column) or self.names
        index = {spelled(value): i for i, value in enumerate(self.values)}
        found = []
        for row, value in enumerate(table.column(column).to_pylist()):
            i = index.get(name_of(value, names))
            if i is None and not (others and isinstance(value, int)):
                raise ConversionError(f"{unit.file}: row {row} of piece {unit.number} has {value} in {column!r}, which is none of the {len(self.values)} classes: "
                                      "leave such rows out")  # fmt: skip
            found.append(value if i is None else i)
        return found


def spelled(value):
    """Values of one column are told apart by it, and JSON keeps it."""
    return str(value)


def name_of(value, names):
    """None: the description has no such number."""
    if names is None:
        return spelled(value)
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None


def names_in(table, column):
    """Of the classes of a column, where Hugging Face's description of the table has them; else None."""
    described = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    return described.get("info", {}).get("features", {}).get(column, {}).get("names")


def values_of(units, column, else_names=False):
    """All that a column holds, {value: a file with it}, and its description's names or None. `else_names`: where there are some, they alone."""
    values, names = {}, None
    for unit in units:
        table = read_unit(unit, [column], as_text=column)
        names = names_in(table, column) or names
        if names and else_names:
            return {}, names
        if is_nested(table.column(column).type):
            raise ConversionError(f"{unit.file}: {column!r} holds {table.column(column).type}, which is no class: name a column of words or numbers")
        found = table.column(column).unique().to_pylist()
        values.update((value, unit.file) for value in found if value not in values)
    if units and units[0].format == "csv":
        values = of_csv(values)
    if None in values and names is None:
        raise ConversionError(f"{values[None]}: the column {column!r} lacks a value in some rows: leave them out first")
    return values, names


def of_csv(values):
    """Numbers where all are written as numbers are, else texts: 01, 1 and 1.0 may be three classes."""
    absent = {text for text in values if text in missing_in_csv()}
    numbers = {number_of(text): file for text, file in values.items() if text not in absent}
    if None not in numbers and len(numbers) == len(values) - len(absent):  # 2 and 2.0 are one number
        return {**numbers, **{None: values[text] for text in absent}}
    return {text or None: file for text, file in values.items()}


def number_of(text):
    """None where it is none, or another spelling of one."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text and (kind is int or math.isfinite(number)):
            return number
    return None


def classes_of(units, column):
    """The values of a column, sorted, or the names that numbers stand for."""
    values, names = values_of(units, column, else_names=True)
    try:
        return Classes(names or sorted(values), names)
    except TypeError:  # of unlike kinds, as one file's all are of one
        raise ConversionError(unlike_kinds(units, column)) from None


def unlike_kinds(units, column):
    """A file with each of two kinds, as numbers and words, which have no order."""
    files = {}
    for unit in units:
        files.setdefault(kind_of(read_unit(unit, [column]).column(column).type), unit.file)
    (kind, file), (other_kind, other) = list(files.items())[:2]
    return f"{file} has {kind} in {column!r}, {other} {other_kind}: write them alike"


def kind_of(held):
    types = arrow().types
    held = held.value_type if types.is_dictionary(held) else held
    if types.is_boolean(held) or types.is_integer(held) or types.is_floating(held) or types.is_decimal(held):
        return "numbers"
    return "words" if types.is_string(held) or types.is_large_string(held) else str(held)


def classes_as_in(folder, units, column):
    """Those of a conversion before. Raises ConversionError where the column has others."""
    values = written_in(folder)
    held, names = values_of(units, column)
    known = {spelled(value) for value in values}
    unknown = {value: file for value, file in held.items() if name_of(value, names) not in known}
    if unknown:
        file = next(iter(unknown.values()))
        shown = [name_of(value, names) or value for value, where in unknown.items() if where == file]
        raise ConversionError(f"{file}: {column!r} holds {some(shown)}, and {folder} has no such class, but {counted(values)}: leave such rows out, or convert both "
                              "anew with --classes-of the one that has all classes")  # fmt: skip
    return Classes(values, names)


def written_in(folder):
    try:
        values = json.loads((pathlib.Path(folder) / "convert.json").read_text())["classes"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ConversionError(f"--classes-of {folder}: no convert.json with classes is there: name a folder that convert has written with --classes") from None
    if not values:
        raise ConversionError(f"--classes-of {folder}: it was written without --classes: name a folder that has classes")
    return values


def some(values):
    shown = ", ".join(map(str, values[:NAMED]))
    return shown + (f" and {len(values) - NAMED} more" if len(values) > NAMED else "")


def counted(values):
    """As in "3 classes: cat, dog, emu"."""
    return f"{len(values)} class{'' if len(values) == 1 else 'es'}: {some(values)}"
