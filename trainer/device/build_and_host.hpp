// What this program was built with and what it finds here. Free of LibTorch.
#pragma once

#include <string>
#include <vector>

namespace onebatch {

/// LibTorch, BLAS, threads, CUDA, NCCL, devices. A line each, "name: value".
std::vector<std::string> describe_build_and_host();

}  // namespace onebatch
