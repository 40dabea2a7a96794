// Kernels are counted and not run.
#include "counts.hpp"
#include "device.hpp"
#include "memory.hpp"
#include "settings.hpp"
#include "streams.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

using namespace null_gpu;

namespace {

// What LibTorch's wheels have kernels for: that of CUDA 12.6 from Maxwell to Hopper, that of CUDA 13 from Turing on.
constexpr int k_least_capability = CUDART_VERSION < 13000 ? 50 : 75;
constexpr int k_most_capability = CUDART_VERSION < 13000 ? 90 : 120;

int capability() {
  const Device& device = settings().devices[static_cast<std::size_t>(current_device())];
  return 10 * device.major + device.minor;
}

bool has_kernels() {
  return capability() >= k_least_capability && capability() <= k_most_capability;
}

cudaError_t launch(cudaStream_t handle, Work work = {}) {
  if (!has_kernels()) return fail(cudaErrorNoKernelImageForDevice);
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
  enqueue(stream, WorkKind::kernel, std::move(work));
  return cudaSuccess;
}

// The one kernel that is the program's own runs where what it reads and writes is remembered: the program compares what
// it draws with the host's before it draws by it.
struct {
  unsigned x;
  unsigned y;
} gridDim, blockDim, blockIdx, threadIdx;

#undef __device__
#undef __global__
#define __device__
#define __global__
#include "trainer/device/noise_kernel.cu"

constexpr char k_of_compiled_code[] = "a kernel of compiled code";
constexpr const char* k_own_kernels[] = {"noise_of_2_bytes", "noise_of_4_bytes", "noise_of_8_bytes"};

struct OwnLaunch {
  const char* function;
  decltype(gridDim) grid;
  decltype(blockDim) block;
  char* noise;
  const char* key;
  Bits layer;
  Rows rows;
  Bits threshold;
  Bits kept;

  std::size_t element_bytes() const { return static_cast<std::size_t>(function[sizeof("noise_of_") - 1] - '0'); }
  std::size_t noise_bytes() const { return rows.count * rows.width * element_bytes(); }
  std::size_t key_bytes() const { return (1 + rows.count / rows.stride[0]) * sizeof(Bits); }
};

template <typename Element>
void run_as(const OwnLaunch& own, char* noise, const char* key) {
  gridDim = own.grid;
  blockDim = own.block;
  for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
      for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y)
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x)
          fill(reinterpret_cast<Element*>(noise), reinterpret_cast<const Bits*>(key), own.layer, own.rows,
               own.threshold, static_cast<Element>(own.kept));
}

void run(const OwnLaunch& own) {
  char* const noise = remembered(own.noise, own.noise_bytes());
  const char* const key = remembered(own.key, own.key_bytes());
  if (noise == nullptr || key == nullptr) return;
  switch (own.element_bytes()) {
    case 2: run_as<unsigned short>(own, noise, key); break;
    case 4: run_as<unsigned>(own, noise, key); break;
    default: run_as<Bits>(own, noise, key);
  }
  if (settings().own_kernels == "wrong") noise[own.noise_bytes() / 2] ^= 1;
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

// What the driver is given is code for the card, made by the real compiler.
int cuModuleLoadData(void** module, const void* code) {
  constexpr int k_invalid_image = 200;
  *module = const_cast<void*>(code);
  return settings().own_kernels != "refused" && std::memcmp(code, "\177ELF", 4) == 0 ? 0 : k_invalid_image;
}

// By a compiler's package: from a file.
int cuModuleLoad(void** module, const char* file) {
  static constexpr char k_code[] = "\177ELF";
  constexpr int k_no_file = 301;
  *module = const_cast<char*>(k_code);
  return std::ifstream(file).good() ? 0 : k_no_file;
}

int cuModuleGetFunction(const char** function, void*, const char* name) {
  constexpr int k_not_found = 500;
  if (std::string_view(name).starts_with("triton_")) {  // which nobody computes here
    *function = k_of_compiled_code;
    return 0;
  }
  const auto* const found = std::ranges::find(k_own_kernels, std::string_view(name));
  *function = found == std::end(k_own_kernels) ? nullptr : *found;
  return *function == nullptr ? k_not_found : 0;
}

int cuLaunchKernel(const char* function, unsigned grid_x, unsigned grid_y, unsigned, unsigned block_x, unsigned block_y,
                   unsigned, unsigned, cudaStream_t handle, void** arguments, void**) {
  if (function == k_of_compiled_code) return launch(handle);
  const OwnLaunch own{function,
                      {grid_x, grid_y},
                      {block_x, block_y},
                      *static_cast<char**>(arguments[0]),
                      *static_cast<char**>(arguments[1]),
                      *static_cast<Bits*>(arguments[2]),
                      *static_cast<Rows*>(arguments[3]),
                      *static_cast<Bits*>(arguments[4]),
                      *static_cast<Bits*>(arguments[5])};
  Stream& stream = stream_of(handle);
  touch(stream, {own.noise, own.noise_bytes(), true, function});
  touch(stream, {own.key, own.key_bytes(), false, function});
  return launch(handle, [own] {
    run(own);
    return true;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof(*attributes));
  if (!has_kernels()) return fail(cudaErrorNoKernelImageForDevice);
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
  *function = dlsym(RTLD_DEFAULT, name);
  if (*function == nullptr && load_driver() != nullptr) *function = dlsym(load_driver(), name);
  if (result != nullptr)
    *result = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return *function != nullptr ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, flags, result);
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
