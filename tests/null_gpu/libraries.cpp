// Answers of the libraries on the device that a caller looks at. All others are made by make_stubs.py: they return 0
// and call what is here.
#include "counts.hpp"
#include "streams.hpp"

#include <cstddef>
#include <cstring>

using namespace null_gpu;

namespace {

// Of a capture each is one kernel.
void one_kernel() {
  if (const auto capture = current_capture()) ++capture->graph.kernels;
}

constexpr std::size_t k_heuristic_bytes = 64;

}  // namespace

extern "C" {

// Stand-ins for CUDA's libraries say here that they compute nothing; the null GPU is what they are for.
extern const char onebatch_cuda_stand_in[];
const char onebatch_cuda_stand_in[] = "";

void null_gpu_blas() {
  ++counts().blas;
  one_kernel();
}

void null_gpu_cudnn() {
  ++counts().cudnn;
  one_kernel();
}

std::size_t cudnnGetVersion() {
  return 91501;
}

std::size_t cudnnGetCudartVersion() {
  return CUDART_VERSION;
}

const char* cudnnGetErrorString(int) {
  return "null GPU";
}

const char* cudnnGetLastErrorString(char*, std::size_t) {
  return "null GPU";
}

const char* cublasGetStatusString(int) {
  return "null GPU";
}

const char* nvrtcGetErrorString(int) {
  return "null GPU";
}

int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, char* result, int* count) {
  std::memset(result, 0, k_heuristic_bytes);
  *count = 1;
  return 0;
}

}  // extern "C"
