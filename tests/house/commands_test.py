#!/usr/bin/env python3
"""Runs the commands of the documents as they stand there.

Every block of commands (```sh) in README.md, CONTRIBUTING.md and docs/ has a line above it that says what becomes of it:
    <!-- run -->                       run here, in a folder of its own that has build/, configs/ and data/
    <!-- run, exit code 2 -->          the same, where the last command's exit code is the point
    <!-- not run here: reason -->      needs what a test has not; says what it needs
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*?) -->\s*\n)?```sh\n(?P<commands>.*?)```", re.S)
DEADLINE_SECONDS = 180


def documents():
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def run_block(commands, build, expected):
    with tempfile.TemporaryDirectory(prefix="onebatch-commands-") as folder:
        scratch = pathlib.Path(folder)
        (scratch / "build").symlink_to(build)
        for name in ("configs", "data", "docs", "examples", "docker"):
            (scratch / name).symlink_to(ROOT / name)
        environment = {**os.environ, "PATH": f"{build}:{os.environ['PATH']}", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=scratch, env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=DEADLINE_SECONDS)
        if done.returncode != expected:
            return f"exit code {done.returncode} where {expected} was expected\n{done.stdout[-4000:]}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    build = parser.parse_args().build.resolve()
    problems = []
    counted = 0
    for document in documents():
        text = document.read_text()
        for block in BLOCK.finditer(text):
            place = f"{document.relative_to(ROOT)}:{text[: block.start('commands')].count(chr(10)) + 1}"
            mark = block["mark"] or ""
            wanted = re.fullmatch(r"run(?:, exit code (\d+))?", mark)
            if not wanted and not mark.startswith("not run here: "):
                problems.append(f"{place}: say above the block whether it is run")
            if not wanted:
                continue
            print(f"{place}: {block['commands'].strip()}", flush=True)
            problem = run_block(block["commands"], build, int(wanted[1] or 0))
            counted += 1
            if problem:
                problems.append(f"{place}: {problem}")
    if counted == 0:
        problems.append("no block of commands was found")
    print("\n".join(problems) if problems else f"{counted} blocks of commands work")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
