#!/usr/bin/env python3
"""Files above 350 lines and functions above 60 hold more than one idea: names them and fails."""
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_FILE_LINES = 350
MOST_FUNCTION_LINES = 60
ON_ONE_LINE = re.compile(r"\)\s*(const|noexcept|override|final|\s)*\{.*\}$")
NOT_A_FUNCTION = re.compile(r"^\s*(namespace|struct|class|enum|extern|union|if|for|while|switch|else|do|try|catch)\b|^\s*}")


def functions(lines):
    """Where each begins, and the lines of its body: from a line that ends in "{" at the indentation of a function to the brace that closes it there."""
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if indent > 2 or "(" not in line or NOT_A_FUNCTION.match(line) or line.lstrip().startswith("//"):
            continue
        if ON_ONE_LINE.search(line.rstrip()):
            yield number + 1, 1
        elif line.rstrip().endswith("{"):
            end = next((i for i in range(number + 1, len(lines)) if lines[i].startswith(" " * indent + "}")), None)
            if end is not None:
                yield number + 1, end - number - 1


def main():
    problems, sizes, all_lines = [], [], 0
    for folder in ("comm", "trainer", "launch"):
        for path in sorted((ROOT / folder).rglob("*.[ch]pp")):
            lines = path.read_text().splitlines()
            place = path.relative_to(ROOT)
            all_lines += len(lines)
            if len(lines) > MOST_FILE_LINES:
                problems.append(f"{place}: {len(lines)} lines")
            found = list(functions(lines))
            sizes += [length for _, length in found]
            problems += [f"{place}:{line}: a function of {length} lines" for line, length in found if length > MOST_FUNCTION_LINES]
    print(f"{all_lines} lines; {len(sizes)} functions: median {statistics.median(sizes):g} lines, 95 % within {statistics.quantiles(sizes, n=20)[-1]:.0f}, longest {max(sizes)}")
    print("\n".join(problems) if problems else "lengths hold")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
