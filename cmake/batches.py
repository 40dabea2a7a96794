#!/usr/bin/env python3
"""Puts sources together that can be compiled as one, since most of their time is that of the headers: batches.py FOLDER SIZE SOURCE...

Writes files into FOLDER that include up to SIZE sources each, and prints the files that are to be compiled, with a semicolon between them. Sources stay apart
where a name that one keeps to itself (in a namespace without a name) means something in another or in a header of the other's.
"""
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
INCLUDED = re.compile(r'^#include "([^"]+)"', re.M)
UNNAMED = re.compile(r"^namespace \{$", re.M)
WORD = re.compile(r"(?<![\w.>:])[A-Za-z_]\w*|(?<=: )[A-Za-z_]\w*")
TYPE = re.compile(r"\b(?:struct|class|enum class|enum|using|concept)\s+(\w+)")
DECLARED = re.compile(r"(\w+)\s*(?=[(={;\[])")


@functools.cache
def text_of(path):
    return COMMENT_OR_TEXT.sub(" ", path.read_text()) if path.exists() else ""


@functools.cache
def headers_of(path):
    """Of this project, with theirs."""
    found = set()
    left = [path]
    while left:
        for name in INCLUDED.findall(left.pop().read_text()):
            header = ROOT / name
            if header.exists() and header not in found:
                found.add(header)
                left.append(header)
    return found


@functools.cache
def words_of(path):
    return frozenset(WORD.findall(text_of(path)))


def outermost(text):
    """What is within no braces or parentheses of its own, up to where the namespace ends."""
    depth, kept = 0, []
    for character in text:
        if character in ")}":
            if depth == 0:
                break
            depth -= 1
        if depth == 0:
            kept.append(character)
        if character in "({":
            depth += 1
    return "".join(kept)


@functools.cache
def own_names(path):
    """Those that a source keeps to itself."""
    names = set()
    text = text_of(path)
    for begin in UNNAMED.finditer(text):
        block = outermost(text[begin.end() :])
        names.update(TYPE.findall(block), DECLARED.findall(block))
    return frozenset(names - {"operator", "if", "for", "while", "switch", "return", "sizeof", "decltype", "noexcept", "alignas", "const"})


@functools.cache
def all_words(path):
    return words_of(path).union(*(words_of(header) for header in headers_of(path)))


def must_be_apart(one, other):
    return not own_names(one).isdisjoint(all_words(other)) or not own_names(other).isdisjoint(all_words(one))


def is_alone(path):
    """What it sets would hold in those behind it."""
    return re.search(r"^\s*#\s*(define|undef|pragma (?!once))|^using namespace", text_of(path), re.M) is not None


def text_of_batch(batch):
    """GCC warns of what a class of a header has of a namespace without a name, unless that stands in the file itself that is compiled."""
    has_such = any(re.search(r"^(?:struct|class) \w+::\w+", text_of(source), re.M) for source in batch)
    return ("#ifndef __clang__\n#pragma GCC diagnostic ignored \"-Wsubobject-linkage\"\n#endif\n" if has_such else "") + "".join(f'#include "{source.relative_to(ROOT)}"\n' for source in batch)


def batches(sources, size):
    made = []
    for source in sources:
        place = None
        if not is_alone(source):
            place = next((batch for batch in made if len(batch) < size and batch[0].parent == source.parent and not is_alone(batch[0]) and not any(must_be_apart(source, one) for one in batch)), None)
        if place is None:
            made.append([source])
        else:
            place.append(source)
    return made


def main():
    folder, size = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    compiled = []
    for batch in batches([pathlib.Path(source) for source in sys.argv[3:]], size):
        if len(batch) == 1:
            compiled.append(batch[0])
            continue
        file = folder / f"{batch[0].parent.name}_{batch[0].stem}.cpp"
        text = text_of_batch(batch)
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
        compiled.append(file)
    print(";".join(map(str, compiled)), end="")


if __name__ == "__main__":
    main()
