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
def example(cmake, build, tmp_path_factory):
    """find_package(onebatch), #include <onebatch/trainer.hpp>: where the programs lie that are built so."""
    prefix, built = (tmp_path_factory.mktemp(name) for name in ("prefix", "example"))
    run(cmake, "--install", build, "--prefix", prefix)
    run(cmake, "-G", "Ninja", "-S", ROOT / "examples/library", "-B", built, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release")
    run(cmake, "--build", built)
    return built


def test_a_program_with_the_library_trains_and_writes_nothing_without_a_run_folder(example, tmp_path):
    said = run(example / "train_digits", ROOT / "data/digits", cwd=tmp_path)
    assert "epoch 2: validation loss" in said
    assert "30 steps" in said
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def said_of_own_kinds(example, tmp_path_factory):
    """What a program says that trains with a model, data, an optimizer, a schedule and a loss of its own, and listens by a sink of its own."""
    return run(example / "train_own_kinds", cwd=tmp_path_factory.mktemp("own_kinds"))


def test_a_program_trains_with_kinds_of_its_own(said_of_own_kinds):
    assert "100 steps" in said_of_own_kinds
    assert float(said_of_own_kinds.split("accuracy ")[1].split()[0]) > 0.8


def test_the_keys_of_a_programs_own_kinds_are_described_and_checked(said_of_own_kinds):
    assert "model.waist: write a whole number from 1 to 4096" in said_of_own_kinds
    assert "schedule.period: triangle: steps" in said_of_own_kinds
    assert "loss.gamma: focal: power of" in said_of_own_kinds


def test_a_programs_own_sink_hears_of_the_run(said_of_own_kinds):
    assert "best epoch" in said_of_own_kinds


def test_a_kind_or_a_sink_of_ones_own_is_one_file_and_a_line_in_a_list():
    """No other file of the program names one."""
    own = ROOT / "examples/library"
    build_list = (own / "CMakeLists.txt").read_text().splitlines()
    for file in (*own.glob("kinds/*.cpp"), *own.glob("sinks/*.cpp")):
        assert sum(f"{file.parent.name}/{file.name}" in line for line in build_list) == 1


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
