"""compile: what is said where it fails, and what is not kept for the next time."""
import errno
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")
from torch._inductor.exc import CppCompileError, InductorError  # noqa: E402

import onebatch as package  # noqa: E402
from compiled_cases import AS_SMOOTHED, MLP, SMOOTHED, Exported, Mlp  # noqa: E402
from onebatch import compiling  # noqa: E402
from onebatch.__main__ import main  # noqa: E402
from onebatch.compiling import FORMAT, compile_program  # noqa: E402
from onebatch.refusals import ExportError, first_line  # noqa: E402

WANTED = torch.__version__.partition("+")[0]
TOO_LITTLE = "g++: fatal error: Killed signal terminated program cc1plus"
BROKEN = "model.cpp:3:10: fatal error: omp.h: No such file or directory"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    package.export(Mlp(), torch.randn(3, 6), folder / "model.pt2", check=False)
    return folder / "model.pt2"


def test_a_program_without_its_loss_is_told_which_to_name(program):
    with pytest.raises(ExportError, match="does not return its loss's sum and weight: write --loss cross_entropy or --loss mse"):
        compile_program(program)


FAILURES = {
    "a full disk": (OSError(errno.ENOSPC, "No space left on device"), 1, "was not compiled this time: [Errno 28] No space left on device"),
    "no memory for the compiler": (CppCompileError(["g++", "a.cpp"], TOO_LITTLE), 1, f"was not compiled this time: C++ compile error: {TOO_LITTLE}"),
    "no files, within the compiler": (InductorError(OSError(errno.EMFILE, "Too many open files"), None), 1, "was not compiled this time: OSError: [Errno 24] Too many open files"),
    "a package that the disk does not hold": (RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 8640 vs 8528"), 1, "was not compiled this time"),
    "a folder that may not be written": (OSError(errno.EACCES, "Permission denied"), 2, "cannot be compiled: [Errno 13] Permission denied"),
    "a header that is missing": (CppCompileError(["g++", "a.cpp"], BROKEN), 2, f"cannot be compiled: C++ compile error: {BROKEN}"),
}


@pytest.mark.parametrize("error, code, words", FAILURES.values(), ids=FAILURES)
def test_what_passes_is_told_from_what_stays(error, code, words, program, monkeypatch, capsys):
    def fail(*_):
        raise error

    monkeypatch.setattr(compiling, "training", fail)
    monkeypatch.setattr(sys, "argv", ["onebatch", "compile", str(program), *AS_SMOOTHED])
    assert main() == code and words in capsys.readouterr().err
    assert not program.with_suffix(".compiled").exists()


def test_the_first_line_of_other_errors_is_their_own():
    assert first_line(ValueError("one: error: two\nthree")) == "one: error: two" and first_line(ValueError()) == "ValueError"


def test_a_program_that_is_exported_anew_meanwhile_is_not_taken_for_the_old_one(program, monkeypatch, tmp_path):
    copy = tmp_path / "model.pt2"
    copy.write_bytes(program.read_bytes())

    def training(*_):
        copy.write_bytes(program.read_bytes() + b"more")
        return {"overwritten": []}

    monkeypatch.setattr(compiling, "training", training)
    with pytest.raises(RuntimeError, match="is another than before: compile it again"):
        compile_program(copy, loss={"kind": "cross_entropy"}, evaluation=False)
    assert not copy.with_suffix(".compiled").exists()


def test_a_failure_that_is_not_kept_is_one_for_all_ranks(onebatch, tmp_path):
    """Who waits takes the answer; the next run tries again."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nif [ "$1" = -c ]; then echo torch {WANTED}; echo onebatch {FORMAT}; exit 0; fi\necho asked >> {tmp_path}/asked\nsleep 2\necho onebatch: busy >&2\nexit 1\n')
    python.chmod(0o755)
    case = Exported(tmp_path, (*MLP[:4], SMOOTHED, AS_SMOOTHED))
    for times in (1, 2):
        said, _ = case.train_and_say(onebatch, 2, compiled="auto", environment={"ONEBATCH_PYTHON": str(python), "XDG_CACHE_HOME": str(tmp_path / "cache")})
        assert "uncompiled" in said and "busy" in said and (tmp_path / "asked").read_text() == "asked\n" * times
