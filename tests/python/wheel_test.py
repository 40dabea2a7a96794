"""The wheel, installed into a bare environment: the commands and files of docs/python.md as they stand, and what a program is that Python starts.

The environment has nothing but pip and the wheel. PyTorch would be another 4 GB: its folders are linked from .deps/python to where pip would
put them, beside the package, and what it needs in Python is found there. So the program finds LibTorch as it does after pip.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from program import ROOT

pytest.importorskip("torch", reason="no PyTorch to install the wheel beside")
pytest.importorskip("scikit_build_core", reason="scikit-build-core, which packs the wheel, is not installed")
DOCUMENT = (ROOT / "docs/python.md").read_text()
FILES = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", DOCUMENT, re.S)
(COMMANDS,) = re.findall(r"<!-- not run here: [^>]*wheel_test.py[^>]* -->\n```sh\n(.*?)```", DOCUMENT, re.S)
PACKAGES = pathlib.Path(__import__("torch").__file__).parents[1]


def run(*command, **options):
    __tracebackhide__ = True
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100, **options)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))} returned {done.returncode}\n{done.stdout}")
    return done.stdout


@pytest.fixture(scope="module")
def wheel(request, tmp_path_factory):
    if "/stand_ins/lib/" in run("ldd", pathlib.Path(request.config.getoption("--build")) / "onebatch"):
        pytest.skip("a build with stand-ins for CUDA's libraries is not packed")
    folder = tmp_path_factory.mktemp("wheel") / "dist"
    path = run(ROOT / "python/pack.sh", sys.executable, request.config.getoption("--build"), folder).strip()
    assert [str(file) for file in folder.iterdir()] == [path]
    return pathlib.Path(path)


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """An environment, and what is set in it."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder)
    kept = {name: value for name, value in os.environ.items() if name.startswith(("OMPI_", "HOME", "TMPDIR", "LD_LIBRARY_PATH"))}
    return folder, {**kept, "PATH": f"{folder}/bin:/usr/bin:/bin", "PIP_NO_DEPS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "XDG_CACHE_HOME": str(folder / "cache"),
                    "OMPI_MCA_rmaps_base_oversubscribe": "1"}  # fmt: skip


def packages_of(environment):
    (folder,) = environment.glob("lib/python3*/site-packages")
    return folder


def bring_torch(environment):
    """As pip would: the libraries beside the package. What they need in Python is found where it is."""
    for name in ("torch", "nvidia"):
        if (PACKAGES / name).is_dir():
            (packages_of(environment) / name).symlink_to(PACKAGES / name)
    (packages_of(environment) / "others.pth").write_text(f"{PACKAGES}\n")


@pytest.fixture(scope="module")
def installed(bare, wheel):
    environment, variables = bare
    run("pip", "install", "--quiet", wheel, env=variables)
    return environment, variables


def test_without_pytorch_the_command_says_what_to_install(installed):
    environment, variables = installed
    done = subprocess.run(["onebatch", "info"], env=variables, capture_output=True, text=True)
    assert done.returncode == 2
    assert "LibTorch is not here, which comes with PyTorch: pip install torch==" in done.stderr
    bring_torch(environment)


@pytest.fixture(scope="module")
def followed(installed, wheel, tmp_path_factory):
    """What the document's commands said, in order, and the folder that they were run in."""
    folder = tmp_path_factory.mktemp("as_documented")
    (folder / "dist").symlink_to(wheel.parent)
    for name, text in FILES:
        (folder / name).write_text(text)
    lines = [line for line in COMMANDS.splitlines() if line]
    assert len(lines) == 5
    return [run("bash", "-euo", "pipefail", "-c", line, env=installed[1], cwd=folder) for line in lines], folder


def test_the_documents_commands_export_save_train_and_load(followed):
    (_, exported, _, trained, predicted), folder = followed
    assert 'model.path = "model.pt2"' in exported
    assert "validation accuracy" in trained
    assert int(re.search(r"(\d+)% of 64", predicted)[1]) >= 90, "a corner is easily learned"
    assert (folder / "runs/corners/checkpoints/latest").exists()


def test_two_ranks_trained(followed):
    assert re.search(r"^ *1 +cpu", followed[0][3], re.M)


def test_the_program_is_what_python_becomes(installed, followed):
    """A signal to the process that was started reaches the program, and its exit code is the program's."""
    environment, variables = installed
    folder = followed[1]
    config = ["train", "my.toml", "--set", "run.name=stopped", "--set", "run.epochs=100000"]
    with subprocess.Popen([environment / "bin/onebatch", *config], env=variables, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        deadline = time.monotonic() + 60
        while not (folder / "runs/stopped/metrics.jsonl").exists():
            assert time.monotonic() < deadline and process.poll() is None, "it has made no step"
            time.sleep(0.05)
        process.send_signal(signal.SIGUSR1)
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 75, said


def test_it_needs_nothing_of_the_build(installed, request):
    """LibTorch is that beside it; of the build's folders none is named in it."""
    program = packages_of(installed[0]) / "onebatch/bin/onebatch"
    path = re.search(r"R(?:UN)?PATH.*\[(.*)\]", run("readelf", "-d", program))[1].split(":")
    assert path and all(folder.startswith("$ORIGIN/../") for folder in path)
    libraries = run("ldd", program)
    assert "not found" not in libraries
    assert f"{packages_of(installed[0])}/onebatch/bin/../../torch/lib/libtorch_cpu.so" in libraries
    assert str(pathlib.Path(request.config.getoption("--build")).resolve()) not in libraries


def test_notices_go_with_the_libraries_that_it_brings(installed):
    folder = packages_of(installed[0]) / "onebatch"
    notices = {path.name: path.read_text() for path in (folder / "licenses").iterdir()}
    stems = {re.match(r"lib[a-z]+", library.name)[0] for library in (folder / "lib").glob("*.so*")}
    assert stems and all(any(name.startswith(stem) for name in notices) for stem in stems)
    assert {"libcli11-dev", "nlohmann-json3-dev", "libfmt-dev"} <= set(notices), "these are compiled in"
    assert all("opyright" in text for text in notices.values())


def test_pytorch_may_lie_elsewhere(installed, tmp_path):
    """As the user's packages, beside the system's: here the package lies alone, and Python finds PyTorch by its path."""
    environment, variables = installed
    run("cp", "-r", packages_of(environment) / "onebatch", tmp_path)
    code = "import onebatch.program as program, sys; print(program.OWN, flush=True); sys.exit(program.main())"
    said = run(environment / "bin/python", "-c", code, "info", env={**variables, "PYTHONPATH": str(tmp_path)})
    assert said.startswith(str(tmp_path))
    assert "libtorch:" in said


def test_versions_are_those_of_the_build():
    """One LibTorch, wherever it is named."""
    project = (ROOT / "pyproject.toml").read_text()
    pinned = re.search(r"set\(ONEBATCH_LIBTORCH_PINNED (\S+)\)", (ROOT / "cmake/Dependencies.cmake").read_text())[1]
    assert f'"torch=={pinned}"' in project
    assert re.search(r'requires = \["(scikit-build-core==[\d.]+)"\]', project)[1] in (ROOT / "dev").read_text()


def test_a_build_without_a_program_is_refused(tmp_path):
    (tmp_path / "CMakeCache.txt").write_text("ONEBATCH_CUDA:BOOL=OFF\n")
    done = subprocess.run([ROOT / "python/pack.sh", sys.executable, tmp_path, tmp_path / "dist"], capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "run ./dev wheel" in " ".join(done.stderr.split())
