"""onebatch compile: the program finds a Python and lets it compile; what it says where none fits, and what it leaves when it is stopped."""
import os
import pathlib
import signal
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")

import onebatch as package  # noqa: E402
from compiled_cases import MLP, Compiled, Mlp, error_of, running, wait_until  # noqa: E402
from onebatch.compiling import FORMAT  # noqa: E402
from program import read_json  # noqa: E402

WANTED = torch.__version__.partition("+")[0]
AS_FLOAT64 = ["--loss", "cross_entropy", "--label-smoothing", "0.1", "--precision", "float64"]
NONE = {"ONEBATCH_PYTHON": None, "VIRTUAL_ENV": None}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    package.export(Mlp(), torch.randn(3, 6), folder / "model.pt2", check=False)
    return folder / "model.pt2"


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def answers(torch_version, package_format):
    return f"echo torch {torch_version}\necho onebatch {package_format}"


def test_what_it_writes_trains_as_what_python_has_written(onebatch, tmp_path):
    case = Compiled(tmp_path, MLP)
    said = onebatch.run(1, "compile", tmp_path / "model.pt2", *AS_FLOAT64, "--out", tmp_path / "other", "--json", tmp_path / "said.json", environment={"ONEBATCH_PYTHON": sys.executable})
    assert f'{tmp_path}/other is written: model.compiled = "{tmp_path}/other"' in said
    assert read_json(tmp_path / "said.json") == {"program": f"{tmp_path}/model.pt2", "folder": f"{tmp_path}/other", "loss": "cross_entropy", "precision": "float64", "device": "cpu", "deterministic": False, "recompute": False, "shared_batch_norm": False, "evaluation": True, "python": sys.executable}
    assert error_of(case.train(onebatch, compiled=tmp_path / "other"), case.train(onebatch, compiled=case.folder)) == 0.0


DO_NOT_FIT = {
    "no python": ("exit 0", "is no Python"),
    "one that fails": ("exit 3", "ended with code 3"),
    "one that is ended": ("kill -9 $$", "was ended by signal 9"),
    "without PyTorch": (answers("none", 1), "has no PyTorch"),
    "of another PyTorch": (answers("2.10.1", 1), f"has PyTorch 2.10.1, and this is LibTorch {WANTED}"),
    "without the package": (answers(WANTED, "none"), "has no package onebatch"),
    "of another package": (answers(WANTED, 99), "onebatch of another version"),
}


@pytest.mark.parametrize("text, words", DO_NOT_FIT.values(), ids=DO_NOT_FIT)
def test_a_python_that_does_not_fit_is_named_and_no_other_tried(text, words, program, onebatch, tmp_path):
    python = script(tmp_path / "python", text)
    said = onebatch.run(1, "compile", program, code=2, environment={"ONEBATCH_PYTHON": str(python)})
    assert f'ONEBATCH_PYTHON = "{python}" ' in said and words in said
    assert "write ONEBATCH_PYTHON=PYTHON before the command" in said and ";" not in said


def test_false_is_no_python(program, onebatch):
    said = onebatch.run(1, "compile", program, code=2, environment={"ONEBATCH_PYTHON": "/bin/false"})
    assert 'ONEBATCH_PYTHON = "/bin/false" ended with code 1' in said


def test_a_python_that_is_not_there(program, onebatch, tmp_path):
    said = onebatch.run(1, "compile", program, code=2, environment={"ONEBATCH_PYTHON": str(tmp_path / "none")})
    assert "cannot be started: No such file or directory" in said


def noted(folder):
    """A Python that notes what it was asked for and then compiles nothing."""
    folder.mkdir(parents=True)
    return script(folder / "python3", f'if [ "$1" = -c ]; then {answers(WANTED, FORMAT).replace(chr(10), "; ")}; exit 0; fi\necho "$@" > {folder}/asked\nexit 7')


def test_the_environment_comes_before_path(program, onebatch, tmp_path):
    """Where LibTorch is a part of no Python: by a link to its folder."""
    noted(tmp_path / "env/bin"), noted(tmp_path / "path")
    packages = pathlib.Path(torch.__file__).parents[1]
    (tmp_path / "lib").symlink_to(packages / "torch/lib")
    libraries = [tmp_path / "lib", *packages.glob("nvidia/*/lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    changes = {**NONE, "VIRTUAL_ENV": str(tmp_path / "env"), "PATH": f"{tmp_path / 'path'}:{os.environ['PATH']}", "LD_LIBRARY_PATH": ":".join(map(str, libraries))}
    onebatch.run(1, "compile", program, "--ignore-index", "-7", "--loss", "cross_entropy", code=1, environment=changes)
    words = (tmp_path / "env/bin/asked").read_text().split()
    assert words[:4] == ["-m", "onebatch", "compile", str(program)]
    assert words[words.index("--ignore-index") + 1] == "-7" and words[words.index("--precision") + 1] == "float32"
    assert not (tmp_path / "path/asked").exists()


def test_libtorchs_own_comes_first(program, onebatch, tmp_path):
    noted(tmp_path / "env/bin")
    said = onebatch.run(1, "compile", program, "--loss", "cross_entropy", "--label-smoothing", "7", code=2, environment={**NONE, "VIRTUAL_ENV": str(tmp_path / "env")})
    assert "label-smoothing" in said
    fixed = tmp_path / "fixed.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(6, 4), (torch.randn(3, 6),)), fixed)
    said = onebatch.run(1, "compile", fixed, "--loss", "cross_entropy", code=2, environment={**NONE, "VIRTUAL_ENV": str(tmp_path / "env"), "PATH": "/usr/bin:/bin"})
    assert "takes one batch size alone" in said and said.count("onebatch: ") == 1
    assert not (tmp_path / "env/bin/asked").exists()


def test_what_is_no_compiled_program_is_not_replaced(program, onebatch, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/weights").write_text("precious")
    said = onebatch.run(1, "compile", program, "--loss", "cross_entropy", "--out", tmp_path / "runs", environment={"ONEBATCH_PYTHON": sys.executable}, code=2)
    assert "runs is there, and is no compiled program that could be replaced: write another --out" in said
    assert (tmp_path / "runs/weights").read_text() == "precious"


def test_no_program(onebatch, tmp_path):
    assert "is no file" in onebatch.run(1, "compile", tmp_path / "none.pt2", code=2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_nothing_is_left_of_what_is_stopped(number, program, onebatch, tmp_path):
    process = onebatch.start(1, "compile", program, "--loss", "cross_entropy", "--out", tmp_path / "made", environment={"ONEBATCH_PYTHON": sys.executable})
    wait_until(lambda: list(tmp_path.glob("made.*")))
    process.send_signal(number)
    process.communicate(timeout=60)
    wait_until(lambda: not running(tmp_path))
    assert list(tmp_path.iterdir()) == []
