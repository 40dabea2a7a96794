#include "trainer/device/gpu_facts.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <string_view>

namespace onebatch {
namespace {

// CUDA writes 12.4 as 12040.
std::string cuda_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

bool reaches(int one, int other) {
  int can = 0;
  return cudaDeviceCanAccessPeer(&can, one, other) == cudaSuccess && can != 0;
}

}  // namespace

GpuFacts read_gpu_facts() {
  GpuFacts facts;
  facts.runtime = cuda_text(CUDART_VERSION);
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) facts.driver_serves = cuda_text(driver);
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess) {
    facts.problem = cudaGetErrorString(counted);
    cudaGetLastError();
    return facts;
  }
  for (int gpu = 0; gpu < count; ++gpu) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, gpu) == cudaSuccess) facts.names.emplace_back(properties.name);
    for (int other = 0; other < gpu; ++other) {
      if (!reaches(gpu, other) || !reaches(other, gpu)) ++facts.pairs_without_peer_access;
    }
  }
  cudaGetLastError();
  return facts;
}

}  // namespace onebatch
