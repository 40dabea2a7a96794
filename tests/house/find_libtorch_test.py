#!/usr/bin/env python3
"""cmake/FindLibTorch.cmake against made-up roots: the wheel's shape, the zip's, the system's, an old one, one with the old C++ ABI, one with its own NCCL inside."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(finding LANGUAGES CXX)
set(ONEBATCH_LIBTORCH_PINNED 2.11.0)
list(APPEND CMAKE_MODULE_PATH "{ROOT}/cmake")
find_package(LibTorch 2.6.0 REQUIRED)
message("found ${{LibTorch_VERSION}} at ${{LibTorch_ROOT_DIR}} cuda ${{LibTorch_CUDA_FOUND}}:${{LibTorch_CUDA_REASON}}")
if(LibTorch_CUDA_FOUND)
  get_target_property(nccl LibTorch::nccl IMPORTED_LOCATION)
  message("nccl ${{nccl}}")
endif()
"""


class Roots:
    """Makes folders that look like LibTorch, with libraries of one function each."""

    def __init__(self, scratch, compiler):
        self.scratch = scratch
        self.compiler = compiler

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

    def add_cuda(self, root, own_nccl):
        nvidia = root.parent / "nvidia"
        for folder, header in (("cu13", "cuda_runtime_api.h"), ("nccl", "nccl.h")):
            (nvidia / folder / "include").mkdir(parents=True)
            (nvidia / folder / "include" / header).write_text("")
        self.library(nvidia / "cu13/lib/libcudart.so.13")
        self.library(nvidia / "nccl/lib/libnccl.so.2")
        self.library(root / "lib/libc10_cuda.so")
        flags = () if own_nccl else ("-Wl,--no-as-needed", str(nvidia / "nccl/lib/libnccl.so.2"))
        self.library(root / "lib/libtorch_cuda.so", "", *flags)


def configure(cmake, scratch, root):
    project = scratch / "project"
    project.mkdir(exist_ok=True)
    (project / "CMakeLists.txt").write_text(PROJECT)
    # One build folder for all roots: what was found under one must not stay for the next.
    done = subprocess.run([cmake, "-G", "Ninja", "-S", project, "-B", scratch / "built", f"-DLIBTORCH_ROOT={root}"], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60)
    return done.returncode, " ".join(done.stdout.split())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--compiler", required=True)
    arguments = parser.parse_args()
    problems = []
    with tempfile.TemporaryDirectory(prefix="onebatch-find-") as folder:
        scratch = pathlib.Path(folder)
        roots = Roots(scratch, arguments.compiler)

        def expect(root, succeeds, *words):
            code, said = configure(arguments.cmake, scratch, root)
            if (code == 0) != succeeds or any(word not in said for word in words):
                problems.append(f"{root}: expected {'success' if succeeds else 'an error'} with {words}:\n{said[-1500:]}")

        wheel = roots.make("wheel/torch")
        roots.add_cuda(wheel, own_nccl=False)
        expect(wheel, True, f"found 2.11.0 at {wheel} cuda TRUE", f"nccl {scratch}/wheel/nvidia/nccl/lib/libnccl.so.2")
        archive = roots.make("zip/libtorch", version="2.7.1")
        expect(archive, True, f"found 2.7.1 at {archive} cuda FALSE", "no torch_cuda")
        inside = roots.make("inside/torch")
        roots.add_cuda(inside, own_nccl=True)
        expect(inside, True, "cuda FALSE", "linked into libtorch_cuda")
        system = roots.make("system", libraries="lib/x86_64-linux-gnu")
        expect(system, True, f"at {system} cuda FALSE")
        expect(roots.make("old", version="2.5.1"), False, "2.5.1", "2.6.0")
        expect(roots.make("old_abi", abi=0), False, "old C++ ABI")
        expect(scratch / "nowhere", False, "holds no include/ATen/ATen.h", "include/ and lib/")
    print("\n".join(problems) if problems else "every root is told apart")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
