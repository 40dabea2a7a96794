"""Runs the commands of the documents as they stand there.

Every block of commands (```sh) in README.md, CONTRIBUTING.md and docs/ has a line above it that says what becomes of it:
    <!-- run -->                       run here, in a folder of its own that has build/, configs/ and data/
    <!-- run, exit code 2 -->          the same, where the last command's exit code is the point
    <!-- not run here: reason -->      needs what a test has not; says what it needs
"""
import os
import pathlib
import re
import subprocess

import pytest

from program import ROOT

BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*?) -->\s*\n)?```sh\n(?P<commands>.*?)```", re.S)
RUN = re.compile(r"run(?:, exit code (\d+))?")
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
DEADLINE_SECONDS = 180


def blocks():
    """Where each is, what is said of it, and its commands."""
    for document in DOCUMENTS:
        text = document.read_text()
        for block in BLOCK.finditer(text):
            line = text[: block.start("commands")].count("\n") + 1
            yield f"{document.relative_to(ROOT)}:{line}", block["mark"] or "", block["commands"]


BLOCKS = list(blocks())
TO_BE_RUN = [pytest.param(commands, int(RUN.fullmatch(mark)[1] or 0), id=place) for place, mark, commands in BLOCKS if RUN.fullmatch(mark)]


def test_every_block_says_whether_it_is_run():
    assert [place for place, mark, _ in BLOCKS if not RUN.fullmatch(mark) and not mark.startswith("not run here: ")] == []


def test_some_blocks_are_run():
    assert TO_BE_RUN


@pytest.mark.parametrize("commands, expected", TO_BE_RUN)
def test_the_commands_work(request, tmp_path, commands, expected):
    build = pathlib.Path(request.config.getoption("--build")).resolve()
    (tmp_path / "build").symlink_to(build)
    for name in ("configs", "data", "docs", "examples", "docker"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = {**os.environ, "PATH": f"{build}:{os.environ['PATH']}", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=DEADLINE_SECONDS)
    assert done.returncode == expected, f"{commands}\n{done.stdout[-4000:]}"
