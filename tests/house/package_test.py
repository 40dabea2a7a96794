"""Installs and packs the build, then uses both as a stranger would: a program of its own against the library, the archive's program from where it was unpacked."""
import pathlib
import subprocess

import pytest

from program import ROOT

DEADLINE_SECONDS = 240


def run(*command, **options):
    __tracebackhide__ = True
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DEADLINE_SECONDS, **options)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))} returned {done.returncode}\n{done.stdout}")
    return done.stdout


@pytest.fixture(scope="module")
def cmake(request):
    return request.config.getoption("--cmake")


@pytest.fixture(scope="module")
def build(request):
    return pathlib.Path(request.config.getoption("--build")).resolve()


@pytest.fixture(scope="module")
def trained_by_the_library(cmake, build, tmp_path_factory):
    """find_package(onebatch), #include <onebatch/trainer.hpp>: what the program says that trains, and the folder that it trains in."""
    prefix, built, scratch = (tmp_path_factory.mktemp(name) for name in ("prefix", "example", "scratch"))
    run(cmake, "--install", build, "--prefix", prefix)
    run(cmake, "-G", "Ninja", "-S", ROOT / "examples/library", "-B", built, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release")
    run(cmake, "--build", built)
    return run(built / "train_digits", ROOT / "data/digits", cwd=scratch), scratch


def test_a_program_with_the_library_trains(trained_by_the_library):
    said, _ = trained_by_the_library
    assert "epoch 2: validation loss" in said
    assert "30 steps" in said


def test_a_session_without_a_run_folder_writes_nothing(trained_by_the_library):
    _, scratch = trained_by_the_library
    assert list(scratch.iterdir()) == []


@pytest.fixture(scope="module")
def unpacked(cmake, build, tmp_path_factory):
    """The archive is whole: nothing but its own place and the system's libraries is needed."""
    scratch = tmp_path_factory.mktemp("archive")
    run(pathlib.Path(cmake).with_name("cpack"), "--config", build / "CPackConfig.cmake", "-G", "TZST", "-B", scratch / "pack")
    (archive,) = (scratch / "pack").glob("*.tar.zst")
    run(cmake, "-E", "tar", "xf", archive, cwd=scratch)
    return scratch / archive.name.removesuffix(".tar.zst")


@pytest.fixture
def bare(tmp_path):
    return {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}


def test_the_archives_program_runs_from_where_it_was_unpacked(unpacked, bare):
    assert "libtorch:" in run(unpacked / "bin/onebatch", "info", env=bare)


def test_the_archives_program_trains(unpacked, bare, tmp_path):
    said = run(unpacked / "bin/onebatch", "train", "configs/demo.toml", "--set", "run.epochs=1", "--set", f"run.output_dir={tmp_path}/runs",
               cwd=unpacked / "share/onebatch", env=bare)
    assert "validation accuracy" in said
