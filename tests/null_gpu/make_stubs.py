#!/usr/bin/env python3
"""Writes C for what LibTorch's CUDA libraries ask for and the stand-in does not have by hand: functions that return 0. The driver's library is linked with the stand-in, so
that what is asked of that one alone finds what is there by hand.

make_stubs.py FOLDER-OF-LIBTORCH STUBS.c DRIVER.c OBJECT ...
"""
import pathlib
import re
import subprocess
import sys

LIBRARIES = ("libtorch_cuda.so", "libc10_cuda.so", "libtorch_cuda_linalg.so", "libtorch_nvshmem.so", "libcaffe2_nvrtc.so")
ASKED = re.compile(r"^(__cuda|cuda|cublas|cudnn|cusparse|cufft|curand|cusolver|nccl|nvrtc|nvshmem|cuFile)")
DRIVERS = re.compile(rb"\x00(cu[A-Z][A-Za-z0-9]+(?:_v[0-9]+)?)(?=\x00)")
OF_LIBRARIES = re.compile(r"^cu(blas|dnn|sparse|solver|fft|rand|File)")
COUNTED = ((re.compile(r"^cublas(LtMatmul$|[A-Z]\w*(mm|mv))"), "null_gpu_blas"), (re.compile(r"^cudnn(BackendExecute|RNNForward|RNNBackward)"), "null_gpu_cudnn"))
BY_HAND = {"cuInit", "cuDriverGetVersion", "cuGetErrorString", "cuDeviceGet", "cuDeviceGetCount", "cuCtxGetCurrent", "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain",
           "cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuDeviceGetAttribute", "cuGetProcAddress", "cuGetProcAddress_v2",
           "cuGetExportTable", "cuFuncGetAttribute"}
OF_COMPILED_CODE = {"cuCtxGetLimit", "cuCtxSetLimit", "cuCtxSetCurrent", "cuFuncSetAttribute", "cuFuncSetCacheConfig", "cuModuleUnload", "cuLaunchKernelEx"}  # what Triton asks for
DRIVER = """#include <dlfcn.h>
int cuInit(unsigned flags) { (void)flags; return 0; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuGetErrorString(int error, const char** text) { (void)error; *text = "null GPU"; return 0; }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetCount(int* count) { *count = 1; return 0; }
int cudaDeviceGetAttribute(int* value, int attribute, int device);
int cuDeviceGetAttribute(int* value, int attribute, int device) { return cudaDeviceGetAttribute(value, attribute, device); }
int cuCtxGetCurrent(void** context) { *context = (void*)1; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) { (void)device; *flags = 0; *active = 1; return 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { (void)device; *context = (void*)1; return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, void* function, int block, unsigned long shared) { (void)function; (void)block; (void)shared; *count = 4; return 0; }
int cuFuncGetAttribute(int* value, int attribute, void* function) { (void)function; *value = attribute == 0 ? 1024 : 0; return 0; }
/* NVRTC asks for what no document names: there is none. */
int cuGetExportTable(const void** table, const void* id) { (void)id; *table = 0; return 500; }
int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags, int* result) {
  (void)version; (void)flags;
  *function = dlsym(RTLD_DEFAULT, name);
  if (result) *result = *function ? 0 : 1;
  return *function ? 0 : 500;
}
int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) { return cuGetProcAddress_v2(name, function, version, flags, 0); }
"""


def symbols(file, *options):
    lines = subprocess.run(["nm", *options, str(file)], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if line.split()}


def main():
    folder, stubs, driver, *objects = sys.argv[1:]
    asked, words = set(), set(OF_COMPILED_CODE)
    for library in filter(pathlib.Path.exists, (pathlib.Path(folder) / name for name in LIBRARIES)):  # older ones lack some
        asked |= {symbol for symbol in symbols(library, "-D", "--undefined-only") if ASKED.match(symbol)}
        if library.name != "libtorch_cuda_linalg.so":
            words |= {word.decode() for word in DRIVERS.findall(library.read_bytes())}
        words |= {symbol for symbol in symbols(library, "-D", "--undefined-only") if re.match(r"cu[A-Z]", symbol)}
    given = set().union(*(symbols(one, "--defined-only") for one in objects))
    lines = ["void null_gpu_blas(void);", "void null_gpu_cudnn(void);"]
    for name in sorted(asked - given):
        counts = next((f"{call}(); " for pattern, call in COUNTED if pattern.search(name)), "")
        lines.append(f"long {name}(void) {{ {counts}return 0; }}")
    pathlib.Path(stubs).write_text("\n".join(lines) + "\n")
    of_driver = sorted(word for word in words - given if not OF_LIBRARIES.match(word) and word not in BY_HAND)
    pathlib.Path(driver).write_text(DRIVER + "".join(f"int {name}(void) {{ return 0; }}\n" for name in of_driver))


if __name__ == "__main__":
    main()
