// What CUDA says of this machine's GPUs, for whoever looks for what is wrong with them. Free of LibTorch.
#pragma once

#include <string>
#include <vector>

namespace onebatch {

struct GpuFacts {
  std::string runtime = {};             // the CUDA that the program was built with, "13.0"; empty: it was built without
  std::string driver_serves = {};       // the newest CUDA that the driver serves; empty where there is no driver
  std::vector<std::string> names = {};  // of those that this process sees
  int pairs_without_peer_access = 0;
  std::string problem = {};  // CUDA's own words where it cannot even count them
};

/// Never throws.
[[nodiscard]] GpuFacts read_gpu_facts();

}  // namespace onebatch
