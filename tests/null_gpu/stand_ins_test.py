"""Stand-ins for CUDA's libraries are enough: Python imports the torch wheel, and the program trains on the null GPU, where nothing of CUDA but its runtime is."""
import functools
import os
import pathlib
import re
import subprocess
import sys

import pytest

from null_gpu.runs import configuration, expect_trained
from program import ROOT

PACKAGES = next((ROOT / ".deps/python/lib").glob("python3*/site-packages"), None)
SMALL = ("libcudart.so.", "libcupti.so.")
FAMILIES = ("libcu", "libnccl", "libnvrtc", "libnvshmem")
# The driver, libcuda.so.1, is the null GPU's.
MISSING = re.compile(r"(?<!libcuda\.so\.1 => )not found|undefined symbol: (cublas|cudnn|cusparse|cufft|curand|cusolver|nccl|nvrtc|nvshmem|cuFile)")
LOADS = """if True:
    import pathlib, torch
    print((torch.ones(2) + 1).tolist())
    print(*sorted({line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if ".so" in line}), sep="\\n")"""
NCCL = """
#include <nccl.h>
#include <cstdio>
#include <initializer_list>
int main() {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  for (const int value : {ncclSuccess, ncclUnhandledCudaError, ncclSystemError, ncclInternalError, ncclInvalidArgument, ncclInvalidUsage, ncclRemoteError, ncclInProgress}) std::printf("%d ", value);
  for (const int value : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) std::printf("%d ", value);
  for (const int value : {ncclInt8, ncclUint8, ncclInt32, ncclUint32, ncclInt64, ncclUint64, ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16}) std::printf("%d ", value);
  std::printf("%zu %zu %d", sizeof(config), sizeof(ncclUniqueId), NCCL_VERSION_CODE);
  for (std::size_t i = 0; i < sizeof(config); ++i) std::printf(" %02x", reinterpret_cast<const unsigned char*>(&config)[i]);
}
"""


class Plain:
    """A folder with the torch wheel's files and, of CUDA's, those of its runtime alone; and all stand-ins, also where the machine has what they stand for."""

    def __init__(self, packages, root, compiler):
        self.root, self.stand_ins = root / "packages", root / "stand_ins/lib"
        for name in ("torch", "torch/lib"):
            (self.root / name).mkdir(parents=True)
            for there in (packages / name).iterdir():
                if there.name != "lib":
                    (self.root / name / there.name).symlink_to(there)
        for there in packages.iterdir():  # what torch itself imports
            if there.name not in ("torch", "nvidia"):
                (self.root / there.name).symlink_to(there)
        for there in packages.glob("nvidia/*/lib/*"):
            if there.name.startswith(SMALL):
                link = self.root / there.relative_to(packages)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(there)
        subprocess.run([sys.executable, ROOT / "cmake/stand_ins/make_stand_ins.py", self.root / "torch/lib", self.stand_ins.parent, "--compiler", compiler, "--all"], check=True)

    @property
    def path(self):
        return os.pathsep.join(map(str, (self.stand_ins, self.root / "torch/lib", *self.root.glob("nvidia/*/lib"))))


def packages_of(build):
    """Where the LibTorch of the build lies, and CUDA's packages beside it."""
    found = re.search(r"^LibTorch_INCLUDE_DIR:PATH=(.+)/torch/include$", (pathlib.Path(build) / "CMakeCache.txt").read_text(), re.M)
    return pathlib.Path(found[1]) if found else None


@pytest.fixture(scope="module")
def plain(request, tmp_path_factory):
    """One of a folder of packages, made once."""
    @functools.cache
    def make(packages):
        if packages is None or not (packages / "torch/lib/libtorch_cuda.so").exists():
            pytest.skip("no torch wheel of CUDA there")
        return Plain(packages, tmp_path_factory.mktemp("plain"), request.config.getoption("--compiler"))

    return make


@pytest.fixture(scope="module")
def of_python(plain):
    return plain(PACKAGES)


@pytest.fixture(scope="module")
def of_program(plain, request):
    """Another one than Python's where the build is with an older LibTorch."""
    return plain(packages_of(request.config.getoption("--build")))


def test_python_imports_the_plain_wheel(of_python):
    environment = dict(os.environ, LD_LIBRARY_PATH=of_python.path, PYTHONPATH=str(of_python.root))
    # -S: torch looks for CUDA's libraries in all packages that Python knows.
    done = subprocess.run([sys.executable, "-S", "-c", LOADS], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said, *files = done.stdout.splitlines()
    assert said == "[2.0, 2.0]"
    of_cuda = [pathlib.Path(file) for file in files if pathlib.Path(file).name.startswith(FAMILIES) and not pathlib.Path(file).name.startswith(SMALL)]
    assert of_cuda and {file.parent for file in of_cuda} == {of_python.stand_ins}


@pytest.mark.parametrize("whose", ["of_python", "of_program"])
def test_every_library_and_function_that_is_asked_for_is_found(request, whose):
    wheel = request.getfixturevalue(whose)
    environment = dict(os.environ, LD_LIBRARY_PATH=str(wheel.stand_ins))
    for library in sorted((wheel.root / "torch/lib").glob("lib*.so")):
        done = subprocess.run(["ldd", "-r", library], env=environment, capture_output=True, text=True)
        missing = [line for line in (done.stdout + done.stderr).splitlines() if MISSING.search(line)]
        assert not missing, f"{library.name}: {missing}"


def test_one_serves_all_who_ask_for_its_name(request, tmp_path):
    """Beside an older LibTorch, which the program is built with, there is Python's, and some of their libraries have the same names."""
    compiler = request.config.getoption("--compiler")

    def library(name, source, *more):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-o", tmp_path / name, *more], input=source, text=True, check=True)

    library("libnccl.so.2", "int ncclOld(void) { return 0; } int ncclNew(void) { return 0; }", "-Wl,-soname,libnccl.so.2")
    for one in ("Old", "New"):
        library(f"{one}/libtorch_cuda.so", f"int nccl{one}(void); int ask(void) {{ return nccl{one}(); }}", tmp_path / "libnccl.so.2")
    subprocess.run([sys.executable, ROOT / "cmake/stand_ins/make_stand_ins.py", tmp_path / "Old", tmp_path / "New", tmp_path / "out", "--compiler", compiler, "--all"], check=True)
    given = subprocess.run(["nm", "-D", "--defined-only", tmp_path / "out/lib/libnccl.so.2"], capture_output=True, text=True, check=True).stdout
    assert "ncclOld" in given and "ncclNew" in given


def test_the_header_has_nccls_own_values(request, tmp_path):
    headers = [*(PACKAGES.glob("nvidia/nccl/include") if PACKAGES else ()), *filter(lambda one: (one / "nccl.h").exists(), [pathlib.Path("/usr/include"), pathlib.Path("/usr/local/cuda/include")])]
    runtime = [*(PACKAGES.glob("nvidia/*/include/cuda_runtime_api.h") if PACKAGES else ())]
    if not headers or not runtime:
        pytest.skip("no nccl.h here to compare with")
    (tmp_path / "values.cpp").write_text(NCCL)
    printed = []
    for folder in (ROOT / "cmake/stand_ins/include", headers[0]):
        subprocess.run([request.config.getoption("--compiler"), "-I", folder, "-I", runtime[0].parent, tmp_path / "values.cpp", "-o", tmp_path / "values"], check=True)
        printed.append(subprocess.run([tmp_path / "values"], capture_output=True, text=True, check=True).stdout)
    assert printed[0] == printed[1]


def test_the_program_trains_on_the_null_gpu(null_gpu, of_program, tmp_path, monkeypatch):
    if not (null_gpu.build / "libnull_gpu.so").exists():
        pytest.skip("a build without CUDA has no null GPU")
    monkeypatch.setenv("LD_LIBRARY_PATH", of_program.path)
    expect_trained(null_gpu.run(2, "train", configuration(tmp_path, "resnet", steps=3)), 3, tmp_path)


def test_without_the_null_gpu_no_card_is_taken(null_gpu, of_program, tmp_path):
    if not (null_gpu.build / "libnull_gpu.so").exists():
        pytest.skip("a build without CUDA has no stand-ins to speak of")
    environment = dict(os.environ, LD_LIBRARY_PATH=of_program.path)
    done = subprocess.run([null_gpu.program, "train", configuration(tmp_path, "mlp")], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "linked with stand-ins for CUDA's libraries" in done.stderr, done.stderr
    assert subprocess.run([null_gpu.program, "--version"], env=environment, capture_output=True, text=True, timeout=60).returncode == 0
