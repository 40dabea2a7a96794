// LibTorch's process-wide switches of arithmetic and threads.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/base/configuration.hpp"
#include "trainer/device/compute_device.hpp"

namespace onebatch {

/// TF32 (off unless precision.allow_tf32), cuDNN's trials of algorithms and deterministic algorithms as asked.
void set_up_arithmetic(const Configuration& configuration);

/// This rank's part of the processors that its node's ranks share: as many threads, and bound to those near its GPU
/// where it has one. What OMP_NUM_THREADS says stays. Collective.
void place_threads(const Configuration& configuration, const ComputeDevice& device, comm::Communicator& control);

/// From now on LibTorch's kernels that the calling thread starts run on it alone: for threads that read data beside
/// those that compute.
void use_one_thread_here();

}  // namespace onebatch
