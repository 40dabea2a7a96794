// Stands in for gpu_facts_cuda.cpp in builds without CUDA.
#include "trainer/device/gpu_facts.hpp"

namespace onebatch {

GpuFacts read_gpu_facts() {
  return {};
}

}  // namespace onebatch
