// A small all-reduce, on the devices and over the carrier that a run would take. Free of LibTorch.
#pragma once

#include "comm/world.hpp"

#include <cstdint>
#include <string>

namespace onebatch {

struct ReduceTrial {
  std::string carrier;       // "local", "mpi" or "nccl"
  std::string device;        // this rank's
  std::string why_not_gpus;  // GPUs are here, and the ranks cannot have one each
  std::int64_t bytes = 0;
  double seconds = 0.0;  // of one, the median
  bool right = false;    // whether every element is the sum
};

/// Collective. Throws what a run's start would throw.
ReduceTrial try_reduction(comm::World& world, std::int64_t bytes);

}  // namespace onebatch
