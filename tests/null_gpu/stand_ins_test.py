"""Stand-ins for CUDA's libraries are enough: Python imports the torch wheel, and the program trains on the null GPU, where nothing of CUDA but its runtime is."""
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


@pytest.fixture(scope="module")
def plain_wheel(tmp_path_factory):
    """A folder with the torch wheel's files and, of CUDA's, those of its runtime alone."""
    if PACKAGES is None or not (PACKAGES / "torch/lib/libtorch_cuda.so").exists():
        pytest.skip("no torch wheel in .deps/python")
    root = tmp_path_factory.mktemp("plain")
    (root / "torch/lib").mkdir(parents=True)
    (root / "nvidia/cu13/lib").mkdir(parents=True)
    for there in (PACKAGES / "torch").iterdir():
        if there.name != "lib":
            (root / "torch" / there.name).symlink_to(there)
    for there in (PACKAGES / "torch/lib").iterdir():
        (root / "torch/lib" / there.name).symlink_to(there)
    for there in PACKAGES.iterdir():  # what torch itself imports
        if there.name not in ("torch", "nvidia"):
            (root / there.name).symlink_to(there)
    for there in PACKAGES.glob("nvidia/*/lib/*"):
        if there.name.startswith(SMALL):
            (root / "nvidia/cu13/lib" / there.name).symlink_to(there)
    return root


@pytest.fixture(scope="module")
def stand_ins(plain_wheel, request, tmp_path_factory):
    """All of them, also where the machine has what they stand for."""
    out = tmp_path_factory.mktemp("stand_ins")
    subprocess.run([sys.executable, ROOT / "cmake/stand_ins/make_stand_ins.py", plain_wheel / "torch/lib", out, "--compiler", request.config.getoption("--compiler"), "--all"], check=True)
    return out / "lib"


def path_of(plain_wheel, stand_ins):
    return os.pathsep.join(map(str, (stand_ins, plain_wheel / "torch/lib", plain_wheel / "nvidia/cu13/lib")))


def test_python_imports_the_plain_wheel(plain_wheel, stand_ins):
    environment = dict(os.environ, LD_LIBRARY_PATH=path_of(plain_wheel, stand_ins), PYTHONPATH=str(plain_wheel))
    # -S: torch looks for CUDA's libraries in all packages that Python knows.
    done = subprocess.run([sys.executable, "-S", "-c", LOADS], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said, *files = done.stdout.splitlines()
    assert said == "[2.0, 2.0]"
    of_cuda = [pathlib.Path(file) for file in files if pathlib.Path(file).name.startswith(FAMILIES) and not pathlib.Path(file).name.startswith(SMALL)]
    assert of_cuda and {file.parent for file in of_cuda} == {stand_ins}


def test_every_library_and_function_that_is_asked_for_is_found(plain_wheel, stand_ins):
    environment = dict(os.environ, LD_LIBRARY_PATH=str(stand_ins))
    for library in sorted((plain_wheel / "torch/lib").glob("lib*.so")):
        done = subprocess.run(["ldd", "-r", library], env=environment, capture_output=True, text=True)
        missing = [line for line in (done.stdout + done.stderr).splitlines() if MISSING.search(line)]
        assert not missing, f"{library.name}: {missing}"


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


def test_the_program_trains_on_the_null_gpu(null_gpu, plain_wheel, stand_ins, tmp_path, monkeypatch):
    if not (null_gpu.build / "libnull_gpu.so").exists():
        pytest.skip("a build without CUDA has no null GPU")
    monkeypatch.setenv("LD_LIBRARY_PATH", path_of(plain_wheel, stand_ins))
    expect_trained(null_gpu.run(2, "train", configuration(tmp_path, "resnet", steps=3)), 3, tmp_path)


def test_without_the_null_gpu_no_card_is_taken(null_gpu, plain_wheel, stand_ins, tmp_path):
    if not (null_gpu.build / "libnull_gpu.so").exists():
        pytest.skip("a build without CUDA has no stand-ins to speak of")
    environment = dict(os.environ, LD_LIBRARY_PATH=path_of(plain_wheel, stand_ins))
    done = subprocess.run([null_gpu.program, "train", configuration(tmp_path, "mlp")], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "linked with stand-ins for CUDA's libraries" in done.stderr, done.stderr
    assert subprocess.run([null_gpu.program, "--version"], env=environment, capture_output=True, text=True, timeout=60).returncode == 0
