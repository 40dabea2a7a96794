"""What the compiler finds around it: tools, PyTorch's settings, and silence."""
import contextlib
import logging
import os
import pathlib
import warnings

import torch

from .refusals import ExportError


@contextlib.contextmanager
def without_atomics(wished):
    """Threads that add into one place would give a sum other bits each time."""
    if not wished:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.utils.deterministic.fill_uninitialized_memory = before[2]


def home_of_cuda(installed):
    """With the headers that the code includes: of an installation, else of PyTorch's packages."""
    needed = ("cuda.h", "cuda_runtime.h", "crt/host_config.h")
    packages = pathlib.Path(torch.__file__).parents[1] / "nvidia" / f"cu{torch.version.cuda.partition('.')[0]}"
    for home in filter(None, (installed, packages)):
        if all((pathlib.Path(home) / "include" / name).is_file() for name in needed):
            return str(home)
    raise ExportError(f"CUDA's headers ({', '.join(needed)}) are not here: pip install nvidia-cuda-crt=={torch.version.cuda}.*, or set CUDA_HOME to an installation of CUDA")


@contextlib.contextmanager
def tools_of(device, scratch):
    """Where CUDA is there by PyTorch's packages and the driver alone, the compiler is told where: it looks for an installation, and for the driver's library by its name for developers."""
    if device.type == "cpu":
        yield
        return
    from torch.utils import cpp_extension
    from triton.backends.nvidia import driver

    before = cpp_extension.CUDA_HOME, os.environ.get("LIBRARY_PATH")
    cpp_extension.CUDA_HOME = home_of_cuda(before[0])
    links = pathlib.Path(scratch) / "libraries"
    links.mkdir()
    libraries = (pathlib.Path(folder) / "libcuda.so.1" for folder in driver.libcuda_dirs())
    (links / "libcuda.so").symlink_to(next(file for file in libraries if file.exists()))
    os.environ["LIBRARY_PATH"] = os.pathsep.join(filter(None, (before[1], str(links))))
    try:
        with torch.cuda.device(device):
            yield
    finally:
        cpp_extension.CUDA_HOME = before[0]
        os.environ.pop("LIBRARY_PATH")
        if before[1] is not None:
            os.environ["LIBRARY_PATH"] = before[1]


@contextlib.contextmanager
def quietly():
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
