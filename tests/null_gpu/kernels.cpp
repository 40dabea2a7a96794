// Kernels are counted and not run.
#include "counts.hpp"
#include "device.hpp"
#include "settings.hpp"
#include "streams.hpp"

#include <dlfcn.h>

#include <cstring>

using namespace null_gpu;

namespace {

constexpr int k_least_capability = 75;  // what CUDA 13 has kernels for

int capability() {
  const Device& device = settings().devices[static_cast<std::size_t>(current_device())];
  return 10 * device.major + device.minor;
}

cudaError_t launch(cudaStream_t handle) {
  if (capability() < k_least_capability) return fail(cudaErrorNoKernelImageForDevice);
  Stream& stream = stream_of(handle);
  if (stream.device != current_device()) {
    report("a kernel was launched on a stream of another device than the thread's current one");
    return fail(cudaErrorInvalidResourceHandle);
  }
  // It would be run now, and never again by a replay.
  if (const auto capture = current_capture();
      capture != nullptr && stream.capture == nullptr && capture->device == stream.device)
    report("a kernel was launched beside the capture that is under way on its device");
  ++counts().kernels;
  enqueue(stream, WorkKind::kernel);
  return cudaSuccess;
}

struct Configuration {
  dim3 grid;
  dim3 block;
  std::size_t shared;
  void* stream;
};
thread_local Configuration pushed;

}  // namespace

extern "C" {

cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  return launch(stream);
}

cudaError_t __cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  return launch(stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void*, void**) {
  return launch(configuration->stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  return launch(stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof(*attributes));
  if (capability() < k_least_capability) return fail(cudaErrorNoKernelImageForDevice);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = capability();
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* count, const void*, int, std::size_t) {
  *count = 4;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* count, const void*, int, std::size_t,
                                                                   unsigned) {
  *count = 4;
  return cudaSuccess;
}

// The driver's functions are looked for by name; what is not found is not used.
// What is here by hand goes before what the driver's stand-in has.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  *function = dlsym(RTLD_DEFAULT, name);
  if (*function == nullptr && driver != nullptr) *function = dlsym(driver, name);
  if (result != nullptr)
    *result = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return *function != nullptr ? cudaSuccess : cudaErrorInvalidValue;
}

void** __cudaRegisterFatBinary(void*) {
  static void* handles[4];
  return handles;
}

void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
char __cudaInitModule(void**) {
  return 1;
}

cudaError_t __cudaGetKernel(void** kernel, const void* function) {
  *kernel = const_cast<void*>(function);
  return cudaSuccess;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, void* stream) {
  pushed = {grid, block, shared, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared = pushed.shared;
  *static_cast<void**>(stream) = pushed.stream;
  return cudaSuccess;
}

}  // extern "C"
