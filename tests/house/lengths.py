#!/usr/bin/env python3
"""Files above 350 lines and functions above 60 hold more than one idea: names them and fails."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_FILE_LINES = 350
MOST_FUNCTION_LINES = 60
NOT_A_FUNCTION = re.compile(r"^\s*(namespace|struct|class|enum|extern|union|if|for|while|switch|else|do|try|catch)\b|^\s*}")


def long_functions(lines):
    """Bodies that begin on a line ending in "{" at the indentation of a function, up to the brace that closes it at the same indentation."""
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if indent > 2 or not line.rstrip().endswith("{") or "(" not in line or NOT_A_FUNCTION.match(line):
            continue
        for end in range(number + 1, len(lines)):
            if lines[end].startswith(" " * indent + "}"):
                if end - number > MOST_FUNCTION_LINES:
                    yield number + 1, end - number
                break


def main():
    problems = []
    for folder in ("comm", "trainer", "launch"):
        for path in sorted((ROOT / folder).rglob("*.[ch]pp")):
            lines = path.read_text().splitlines()
            place = path.relative_to(ROOT)
            if len(lines) > MOST_FILE_LINES:
                problems.append(f"{place}: {len(lines)} lines")
            problems += [f"{place}:{line}: a function of {length} lines" for line, length in long_functions(lines)]
    print("\n".join(problems) if problems else "lengths hold")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
