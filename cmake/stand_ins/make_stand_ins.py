#!/usr/bin/env python3
"""Makes shared libraries that stand in for those of CUDA that LibTorch's libraries are linked with and that are not here: each of their functions fails. With them
LibTorch loads; on a GPU nothing would run.

make_stand_ins.py FOLDER-OF-LIBTORCH [ANOTHER ...] OUT [--compiler CC] [--all]

FOLDER-OF-LIBTORCH has libtorch_cuda.so. OUT/lib gets the libraries, none where nothing is missing, and each for all LibTorch that ask for its name; --all: also those that are here,
but not CUDA's runtime. A later call with the same LibTorch leaves them as they are. Prints their names, one a line.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# What asks for symbols without a version says by their first letters whose they are.
OWNERS = {"nccl": "libnccl.so", "cusparseLt": "libcusparseLt.so", "cuFile": "libcufile.so", "curand": "libcurand.so", "nvshmem": "libnvshmem_host.so"}
# The driver's is the null GPU's; the runtime comes in a small wheel of its own, which LibTorch's part for the CPU needs, too.
NOT_MADE = re.compile(r"^lib(cuda|cudart|cupti)\.so")
CUDAS = re.compile(r"^lib(cu|nccl|nv)\w*\.so\.\d+$")
TEXTS = re.compile(r"(Error|Last)String|StatusString|(Error|Status)Name")
WORDS = "a stand-in for a library of CUDA, which computes nothing: it is for the null GPU alone"
# Of the program's start: whether CUDA is there is asked of this.
TOLD = "onebatch_cuda_stand_in"


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


def needed_by(library):
    """The names of CUDA's libraries that it is linked with."""
    names = re.findall(r"\(NEEDED\)\s+Shared library: \[(.+?)\]", run("readelf", "-dW", library))
    return {name for name in names if CUDAS.match(name) and not NOT_MADE.match(name)}


def missing(library):
    """Those of all names that the loader does not find, for it or for what it needs."""
    done = subprocess.run(["ldd", str(library)], capture_output=True, text=True)
    return set(re.findall(r"^\s*(\S+) => not found", done.stdout, re.M))


def versions_of(library):
    """Which library each version of a symbol is from."""
    owners, owner = {}, None
    for line in run("readelf", "-VW", library).splitlines():
        if found := re.search(r"Version: 1  File: (\S+)", line):
            owner = found[1]
        elif (found := re.search(r"Name: (\S+)  Flags: ", line)) and owner:
            owners[found[1]] = owner
    return owners


def asked_of(libraries, names):
    """By name of a library: the symbols that are asked of it, each with its version, which may be empty."""
    wanted = {name: set() for name in names}
    for library in libraries:
        owners = versions_of(library)
        for line in run("nm", "-D", "--undefined-only", "--with-symbol-versions", library).splitlines():
            symbol, _, version = line.split()[-1].partition("@")
            if version:
                owner = owners.get(version.lstrip("@"))
            else:
                first = next((file for letters, file in OWNERS.items() if symbol.startswith(letters)), None)
                owner = next((name for name in names if first and name.startswith(first + ".")), None)
            if owner in wanted:
                wanted[owner].add((symbol, version.lstrip("@")))
    return wanted


def source(symbols):
    lines = [f'const char {TOLD}[] = "{WORDS}";']
    for symbol in sorted(symbol for symbol, _ in symbols):
        lines.append(f"const char* {symbol}(void) {{ return {TOLD}; }}" if TEXTS.search(symbol) else f"int {symbol}(void) {{ return 1; }}")
    return "\n".join(lines) + "\n"


def script(symbols):
    """For the linker: who was linked with a version will have that, and no other."""
    parts = []
    for version in sorted({version for _, version in symbols}):
        names = " ".join(f"{symbol};" for symbol, one in sorted(symbols) if one == version)
        parts.append(f"{version or 'STAND_IN'} {{ global: {names} }};")
    return "\n".join([*parts, f"STAND_IN_WORDS {{ global: {TOLD}; local: *; }};"]) + "\n"


def make(folder, name, symbols, compiler):
    with tempfile.TemporaryDirectory() as scratch:
        text, versions = pathlib.Path(scratch) / "stand_in.c", pathlib.Path(scratch) / "versions"
        text.write_text(source(symbols))
        versions.write_text(script(symbols))
        options = [f"-Wl,--version-script={versions}"] if any(version for _, version in symbols) else []
        run(compiler, "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", *options, "-x", "c", text, "-o", folder / name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("libtorch", type=pathlib.Path, nargs="+")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--compiler", default="cc")
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    libraries = [library for folder in given.libtorch for library in sorted(folder.glob("lib*.so"))]
    for folder in given.libtorch:
        if not (folder / "libtorch_cuda.so").exists():
            sys.exit(f"make_stand_ins.py: {folder} has no libtorch_cuda.so: give the folder lib of a LibTorch with CUDA, as of the torch wheel")
    names = set().union(*map(needed_by, libraries))
    if not given.all:
        names &= set().union(*map(missing, libraries))
    stamp = given.out / "made_of"
    facts = "\n".join([pathlib.Path(__file__).read_text(), *sorted(names), *(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in libraries)])
    if not stamp.exists() or stamp.read_text() != facts:
        shutil.rmtree(given.out, ignore_errors=True)
        (given.out / "lib").mkdir(parents=True)
        for name, symbols in asked_of(libraries, names).items():
            make(given.out / "lib", name, symbols, given.compiler)
        stamp.write_text(facts)
    print("\n".join(sorted(names)))


if __name__ == "__main__":
    main()
