"""What the compiler finds around it: tools, PyTorch's settings, and silence."""
import contextlib
import logging
import os
import pathlib
import tempfile
import warnings
from unittest import mock

import torch
from torch._inductor import cpu_vec_isa, lowering
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.fx_passes import post_grad
from torch.utils._sympy.functions import Max

from .refusals import ExportError


@contextlib.contextmanager
def quick_trials():
    """To find out which vectors this processor has, the compiler lets Pythons of its own load a trial each, six of them where it knows AVX-512, which import all of PyTorch before: 11 s.
    The library that a trial is linked with is enough; where it is not, PyTorch is imported as before."""
    before, library = getattr(cpu_vec_isa.VecISA, "_avx_py_load", None), str(pathlib.Path(torch.__file__).parent / "lib/libtorch_cpu.so")
    if before is None:  # it goes about it in another way
        yield
        return
    cpu_vec_isa.VecISA._avx_py_load = f"""
from ctypes import CDLL
try:
    CDLL({library!r})
    CDLL("__lib_path__")
except OSError:
    import torch
    CDLL("__lib_path__")
"""
    try:
        yield
    finally:
        cpu_vec_isa.VecISA._avx_py_load = before


@contextlib.contextmanager
def sizes_declared():
    """The C++ that the compiler writes declares sizes once for each of its two passes, and tells those by the address of an object that is gone by then: where another has come to
    lie there, it uses what is declared further below, and fails. No object goes as long as it writes."""
    kept, before = [], CppWrapperCpu.codegen_int_array_var

    def declared(self, sizes, writeline, *more, **named):
        kept.append(writeline)
        return before(self, sizes, writeline, *more, **named)

    CppWrapperCpu.codegen_int_array_var = declared
    try:
        yield
    finally:
        CppWrapperCpu.codegen_int_array_var = before


def place_of_maximum(offsets, kernel_size, input_size, stride, padding, dilation):
    """As the compiler's lowering of the same name, of a window of nothing but -inf within the input: the compiler takes the window's first place, which may lie in the padding."""

    def places(outputs, offset):
        begins = outputs[-len(kernel_size) :]
        return [Max(0, begins[i] * stride[i] + offset[i] * dilation[i] - padding[i]) for i in range(len(kernel_size))]

    return lowering._pool_offsets_to_indices(offsets, kernel_size, input_size, places)


@contextlib.contextmanager
def libtorchs_pooling(device):
    """On a CPU the backward of max pooling is LibTorch's, which goes once through the gradient: the compiler's looks for each input through all windows that reach it, without vectors."""
    own = {torch.ops.aten.max_pool2d_with_indices_backward.default: lowering.fallback_max_pool2d_with_indices_backward, torch.ops.prims._low_memory_max_pool_offsets_to_indices.default: place_of_maximum}
    with mock.patch.dict(lowering.lowerings, own if device.type == "cpu" else {}):
        yield


@contextlib.contextmanager
def biases_apart():
    """Where nothing but elementwise operators follow a linear layer, their kernel adds the bias, as on a GPU. Else the product begins with the bias in every row of its result, which is
    written and read once more for that. In 16 bits PyTorch leaves it so."""
    with mock.patch.object(post_grad, "is_gpu", lambda _: True):  # nothing else there asks it
        yield


@contextlib.contextmanager
def put_back(*names):
    """Variables of the environment, which are afterwards what they were."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def own_results():
    """In one cache two processes that compile the same would write into each other's files, since the same text comes to the same name."""
    folder = tempfile.TemporaryDirectory(prefix="onebatch-compile.", ignore_cleanup_errors=True)
    with folder, put_back("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):  # the compiler sets the second by the first
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder.name
        yield


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

    before = cpp_extension.CUDA_HOME
    cpp_extension.CUDA_HOME = home_of_cuda(before)
    links = pathlib.Path(scratch) / "libraries"
    links.mkdir()
    libraries = (pathlib.Path(folder) / "libcuda.so.1" for folder in driver.libcuda_dirs())
    (links / "libcuda.so").symlink_to(next(file for file in libraries if file.exists()))
    try:
        with torch.cuda.device(device), put_back("LIBRARY_PATH"):
            os.environ["LIBRARY_PATH"] = os.pathsep.join(filter(None, (os.environ.get("LIBRARY_PATH"), str(links))))
            yield
    finally:
        cpp_extension.CUDA_HOME = before


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
