#!/usr/bin/env python3
"""What the documents list is what the code has: configuration keys, notes, exit codes."""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def text(name):
    return (ROOT / name).read_text()


def code():
    return [path for folder in ("comm", "trainer", "launch") for path in sorted((ROOT / folder).rglob("*.[ch]pp"))]


def differences(what, documented, real):
    return [f"{what} {name}: in the documents, not in the code" for name in sorted(documented - real)] + [
        f"{what} {name}: in the code, not in the documents" for name in sorted(real - documented)
    ]


KEYS = "docs/configuration.md"
ROW = re.compile(r"^\| `([a-z_]+(?:\.[a-z_]+)+)` \|.*$", re.M)


def rows_of_program(program):
    """Key: its row, as the program describes it."""
    said = subprocess.run([program, "info", "--keys"], text=True, capture_output=True, check=True).stdout
    return {match.group(1): match.group(0) for match in ROW.finditer(said)}


def check_keys(program):
    """Every key of the program has its row in the tables, and no other has one."""
    real = rows_of_program(program)
    documented = {match.group(1): match.group(0) for match in ROW.finditer(text(KEYS))}
    changed = [f"key {name}: {KEYS} says otherwise than the program: mend it by --write" for name in sorted(real.keys() & documented.keys())
               if real[name] != documented[name]]
    return (["no configuration keys were found"] if len(real) < 40 else []) + differences("key", documented.keys(), real.keys()) + changed


def table_problems(document):
    """Rows of keys that are there twice, or that no table's head stands above."""
    problems, seen, in_table = [], set(), False
    for line in document.splitlines():
        in_table = line.startswith("|") and (in_table or line.startswith("| key |"))
        if not (row := ROW.match(line)):
            continue
        if row.group(1) in seen:
            problems.append(f"key {row.group(1)}: two rows")
        if not in_table:
            problems.append(f"key {row.group(1)}: its row is in no table")
        seen.add(row.group(1))
    return problems


def write_keys(program):
    """Puts the program's rows in the place of those that the tables have."""
    real = rows_of_program(program)
    (ROOT / KEYS).write_text(ROW.sub(lambda match: real.get(match.group(1), match.group(0)), text(KEYS)))


def check_notes():
    """A note that the code cites is written in DESIGN.md, or beside the code and listed there."""
    design = text("DESIGN.md")
    written = set(re.findall(r"^### Note \[(.+?)\]", design, re.M)) | set(re.findall(r"^\* Note \[(.+?)\]", design, re.M))
    cited = set()
    for path in code():
        joined = re.sub(r"\s*\n\s*///?\s*", " ", path.read_text())
        cited |= set(re.findall(r"Note \[([^\]]+)\]", joined))
    return [f"Note [{name}] is cited and not in DESIGN.md" for name in sorted(cited - written)]


def check_places():
    """The files that DESIGN.md and docs/ name are there."""
    problems = []
    for document in [ROOT / "DESIGN.md", ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for name in re.findall(r"`((?:comm|trainer|launch|cmake|tests|docker|configs|examples|bench)/[\w./-]+\.\w+)`", document.read_text()):
            if not (ROOT / name).exists():
                problems.append(f"{document.name} names {name}, which is not there")
        for name in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text()):
            if not (document.parent / name).exists():
                problems.append(f"{document.name} links to {name}, which is not there")
    return problems


def check_exit_codes():
    documented = set(re.findall(r"^\| (\d+) \|", text("docs/exit_codes.md"), re.M))
    block = re.search(r"enum class ExitCode[^{]*{([^}]*)}", text("trainer/base/error.hpp")).group(1)
    return differences("exit code", documented, set(re.findall(r"= (\d+)", block)))


def test_the_keys_of_the_documents_are_those_of_the_program(request):
    assert check_keys(request.config.getoption("--program")) == []


TABLE = "| key | default | meaning |\n| --- | --- | --- |\n| `a.b` | | |\n"


def test_a_row_that_is_there_twice_or_in_no_table_is_found():
    assert table_problems(TABLE) == []
    assert table_problems(TABLE + "| `a.b` | | |\n") == ["key a.b: two rows"]
    assert table_problems(TABLE + "\n| `a.c` | | |\n") == ["key a.c: its row is in no table"]


def test_every_row_of_a_key_is_in_a_table_once():
    assert table_problems(text(KEYS)) == []


def test_every_note_that_is_cited_is_written():
    assert check_notes() == []


def test_every_place_that_is_named_is_there():
    assert check_places() == []


def test_the_exit_codes_of_the_documents_are_those_of_the_code():
    assert check_exit_codes() == []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/onebatch", help="onebatch, whose keys are compared")
    parser.add_argument("--write", action="store_true", help="mend the rows of the tables")
    arguments = parser.parse_args()
    if arguments.write:
        write_keys(arguments.program)
    found = check_notes() + check_places() + check_exit_codes() + table_problems(text(KEYS))
    if arguments.program.exists():
        found += check_keys(arguments.program)
    else:
        print(f"the keys were not compared: there is no {arguments.program}")
    print("\n".join(found) if found else "the documents hold")
    return 1 if found else 0


if __name__ == "__main__":  # ./dev lint and people, without pytest
    sys.exit(main())
