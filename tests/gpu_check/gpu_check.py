#!/usr/bin/env python3
"""Everything that needs a GPU, in parts of at most 8 minutes that can be named, and one table of what was found.

gpu_check.py PROGRAM [PART ...] [--out DIR] [--device cuda] [--list]

Needs mpirun and a Python with torch for the card (this one; torchvision and safetensors for the parts of memory and speed). The table is DIR/gpu-check.json and .md; what
parts find that are run later is added to it. `--device cpu` shows that the parts themselves work. Returns 1 where a row has failed.
"""
import argparse
import dataclasses
import json
import pathlib
import sys
import time
import traceback

import correctness
import memory
import speed
from check import Check, OutOfTime

# In the order of their worth; minutes.
PARTS = {
    "basics": (correctness.basics, 4),
    "verify": (correctness.verify_settings, 4),
    "random": (correctness.random_runs, 6),
    "nccl": (correctness.nccl, 4),
    "speed": (speed.speed, 8),
    "probe": (memory.probe, 8),
    "exact": (speed.exact_over_local, 4),
    "out_of_memory": (memory.out_of_memory, 3),
    "tutorial": (speed.tutorial, 3),
}


def run_part(name, program, device):
    part, minutes = PARTS[name]
    check = Check(name, program, device, 60 * minutes)
    try:
        part(check)
    except OutOfTime:
        check.row("done in time", f"more than {minutes} minutes", "all of it", False)
    except Exception:  # one part must not end the others
        check.row("ended", traceback.format_exc(limit=-2).strip().replace("\n", " "), "without an error", False)
    finally:
        check.close()
    return check.rows


def add_to_table(out, name, rows):
    """The rows of all parts until now."""
    path = out / "gpu-check.json"
    before = json.loads(path.read_text()) if path.exists() else []
    kept = [row for row in before if row["part"] != name] + [dataclasses.asdict(row) for row in rows]
    path.write_text(json.dumps(kept, indent=1))
    lines = ["| part | check | figure | limit | |", "| --- | --- | --- | --- | --- |"]
    for row in kept:
        cells = [str(row[key]).replace("|", "/").replace("\n", " ") for key in ("part", "check", "figure", "limit")]
        lines.append("| " + " | ".join([*cells, "passed" if row["passed"] else "FAILED"]) + " |")
    (out / "gpu-check.md").write_text("\n".join(lines) + "\n")
    return lines, kept


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program", nargs="?")
    options.add_argument("parts", nargs="*", help=", ".join(f"{name} ({minutes} min)" for name, (_, minutes) in PARTS.items()))
    options.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-check"))
    options.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    options.add_argument("--list", action="store_true", help="the parts, and what they are about")
    given = options.parse_args()
    if given.list or not given.program:
        print("\n".join(f"{name:14} {minutes} min  {part.__doc__}" for name, (part, minutes) in PARTS.items()))
        return 0
    if unknown := set(given.parts) - set(PARTS):
        options.error(f"no part {', '.join(sorted(unknown))}: write one of {', '.join(PARTS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    for name in given.parts or PARTS:
        lines, rows = add_to_table(given.out, name, run_part(name, given.program, given.device))
    failed = sum(not row["passed"] for row in rows)
    print("\n".join(lines))
    print(f"{len(rows) - failed} passed, {failed} failed ({time.monotonic() - begin:.0f} s); the table is {given.out / 'gpu-check.md'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
