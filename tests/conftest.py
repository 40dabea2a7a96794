"""What all tests in Python share. ctest gives each file the programs; by hand: .deps/python/bin/python -m pytest tests/cli"""
import os
import pathlib
import shutil

import pytest

from program import Program, Scratch

BUILD = pathlib.Path(__file__).resolve().parents[1] / "build"
SKIPPED = 77  # ctest counts a file of which nothing was tried as skipped


def pytest_addoption(parser):
    parser.addoption("--program", default=BUILD / "onebatch", help="the program")
    parser.addoption("--noted-program", default=BUILD / "tests/noted_onebatch", help="one that notes what it syncs")
    parser.addoption("--faulty-program", default=BUILD / "tests/faulty_onebatch", help="one with a rank that fails on request")
    parser.addoption("--show-samples", default=BUILD / "tests/show_samples", help="one that writes what it reads of data")
    parser.addoption("--build", default=BUILD, help="the build folder")
    parser.addoption("--cmake", default=shutil.which("cmake"))
    parser.addoption("--compiler", default=shutil.which("c++"))
    parser.addoption("--full", action="store_true", help="minutes more, of what takes long")


def pytest_configure(config):
    """mpirun refuses root unless told twice, and ranks that wait must not keep the cores from those that work."""
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1")
    os.environ.setdefault("AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL", "O0")  # what calls native code's kernels: a quarter of the C++ compiler's time, and nothing is timed


def pytest_sessionfinish(session, exitstatus):
    stats = session.config.pluginmanager.get_plugin("terminalreporter").stats
    nothing_tried = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if nothing_tried and stats.get("skipped") and not stats.get("passed"):
        session.exitstatus = SKIPPED


def program_of(option):
    @pytest.fixture(scope="module")
    def make(request, tmp_path_factory):
        return Program(request.config.getoption(option), tmp_path_factory.mktemp("cache"))

    return make


onebatch = program_of("--program")
noted_onebatch = program_of("--noted-program")
faulty_onebatch = program_of("--faulty-program")


@pytest.fixture
def scratch(tmp_path):
    """A configuration of the digits, in a folder of the test's own."""
    return Scratch(tmp_path)


@pytest.fixture(scope="session")
def full(request):
    return request.config.getoption("--full")
