"""cmake/FindLibTorch.cmake against made-up roots: the wheel's shape, the zip's, the system's, an old one, one with the old C++ ABI, one with its own NCCL inside."""
import subprocess

import pytest

from program import ROOT

PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(finding LANGUAGES CXX)
set(ONEBATCH_LIBTORCH_PINNED 2.11.0)
list(APPEND CMAKE_MODULE_PATH "{ROOT}/cmake")
find_package(LibTorch 2.6.0 REQUIRED)
message("found ${{LibTorch_VERSION}} at ${{LibTorch_ROOT_DIR}} cuda ${{LibTorch_CUDA_FOUND}}:${{LibTorch_CUDA_REASON}}")
if(LibTorch_CUDA_FOUND)
  get_target_property(nccl LibTorch::nccl IMPORTED_LOCATION)
  get_target_property(cudart LibTorch::cudart IMPORTED_LOCATION)
  get_target_property(headers LibTorch::cudart INTERFACE_INCLUDE_DIRECTORIES)
  message("nccl ${{nccl}} cudart ${{cudart}} headers ${{headers}}")
endif()
"""


class Roots:
    """Makes folders that look like LibTorch, with libraries of one function each."""

    def __init__(self, scratch, cmake, compiler):
        self.scratch, self.cmake, self.compiler = scratch, cmake, compiler

    def library(self, path, source="", *flags):
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([self.compiler, "-shared", "-fPIC", "-x", "c++", "-", "-x", "none", "-o", path, f"-Wl,-soname,{path.name}", *flags], input=source, text=True,
                       check=True)

    def make(self, name, version="2.11.0", abi=1, libraries="lib"):
        root = self.scratch / name
        header = root / "include/torch/csrc/api/include/torch/version.h"
        header.parent.mkdir(parents=True)
        parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."))
        header.write_text("".join(f"#define TORCH_VERSION_{part} {number}\n" for part, number in parts))
        (root / "include/ATen").mkdir()
        (root / "include/ATen/ATen.h").write_text("")
        self.library(root / libraries / "libc10.so", "#include <string>\nnamespace c10 { void take(std::string) {} }\n", f"-D_GLIBCXX_USE_CXX11_ABI={abi}")
        self.library(root / libraries / "libtorch_cpu.so")
        return root

    def add_cuda(self, root, own_nccl, runtime="cu13/lib/libcudart.so.13"):
        nvidia = root.parent / "nvidia"
        for folder, header in ((runtime.split("/")[0], "cuda_runtime_api.h"), ("nccl", "nccl.h")):
            (nvidia / folder / "include").mkdir(parents=True)
            (nvidia / folder / "include" / header).write_text("")
        self.library(nvidia / runtime)
        self.library(nvidia / "nccl/lib/libnccl.so.2")
        self.library(root / "lib/libc10_cuda.so", "", "-Wl,--no-as-needed", str(nvidia / runtime))
        flags = () if own_nccl else ("-Wl,--no-as-needed", str(nvidia / "nccl/lib/libnccl.so.2"))
        self.library(root / "lib/libtorch_cuda.so", "", *flags)

    def find(self, root):
        """The exit code and words of a project that looks there."""
        project = self.scratch / "project"
        project.mkdir(exist_ok=True)
        (project / "CMakeLists.txt").write_text(PROJECT)
        # One build folder for all roots: what was found under one must not stay for the next.
        done = subprocess.run([self.cmake, "-G", "Ninja", "-S", project, "-B", self.scratch / "built", f"-DLIBTORCH_ROOT={root}"], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60)
        return done.returncode, " ".join(done.stdout.split())

    def found(self, root):
        __tracebackhide__ = True
        code, said = self.find(root)
        assert code == 0, said
        return said

    def refused(self, root):
        __tracebackhide__ = True
        code, said = self.find(root)
        assert code != 0, said
        return said


@pytest.fixture(scope="module")
def roots(request, tmp_path_factory):
    return Roots(tmp_path_factory.mktemp("roots"), request.config.getoption("--cmake"), request.config.getoption("--compiler"))


def test_the_wheel_has_cuda_and_nccl_beside_it(roots):
    wheel = roots.make("wheel/torch")
    roots.add_cuda(wheel, own_nccl=False)
    said = roots.found(wheel)
    assert f"found 2.11.0 at {wheel} cuda TRUE" in said
    assert f"nccl {roots.scratch}/wheel/nvidia/nccl/lib/libnccl.so.2" in said


def test_the_runtime_is_the_one_that_libtorch_asks_for(roots):
    older = roots.make("older/torch", version="2.7.1")
    roots.add_cuda(older, own_nccl=False, runtime="cuda_runtime/lib/libcudart.so.12")
    roots.library(older / "lib/libcudart.so.13")  # as a newer CUDA that the machine has
    assert f"cudart {roots.scratch}/older/nvidia/cuda_runtime/lib/libcudart.so.12" in roots.found(older)


def test_the_headers_that_come_with_nvcc_are_found(roots):
    root = roots.make("nvcc/torch", version="2.7.1")
    roots.add_cuda(root, own_nccl=False, runtime="cuda_runtime/lib/libcudart.so.12")
    nvidia = root.parent / "nvidia"
    (nvidia / "cuda_runtime/include/cuda_runtime_api.h").write_text('#include "crt/host_defines.h"\n')
    (nvidia / "cuda_nvcc/include/crt").mkdir(parents=True)
    (nvidia / "cuda_nvcc/include/crt/host_defines.h").write_text("")
    said = roots.found(root)
    assert "cuda TRUE" in said and f"headers {nvidia}/cuda_runtime/include;{nvidia}/cuda_nvcc/include" in said


def test_the_zip_for_the_cpu_has_no_cuda(roots):
    archive = roots.make("zip/libtorch", version="2.7.1")
    said = roots.found(archive)
    assert f"found 2.7.1 at {archive} cuda FALSE" in said
    assert "no torch_cuda" in said


def test_an_nccl_inside_cannot_be_shared(roots):
    inside = roots.make("inside/torch")
    roots.add_cuda(inside, own_nccl=True)
    said = roots.found(inside)
    assert "cuda FALSE" in said
    assert "linked into libtorch_cuda" in said


def test_the_systems_libraries_are_in_a_folder_of_their_architecture(roots):
    system = roots.make("system", libraries="lib/x86_64-linux-gnu")
    assert f"at {system} cuda FALSE" in roots.found(system)


def test_an_old_one_is_refused_with_the_least_version(roots):
    said = roots.refused(roots.make("old", version="2.5.1"))
    assert "2.5.1" in said
    assert "2.6.0" in said


def test_the_old_abi_is_refused(roots):
    assert "old C++ ABI" in roots.refused(roots.make("old_abi", abi=0))


def test_a_folder_that_is_none_is_refused_with_what_it_should_hold(roots):
    said = roots.refused(roots.scratch / "nowhere")
    assert "holds no include/ATen/ATen.h" in said
    assert "include/ and lib/" in said
