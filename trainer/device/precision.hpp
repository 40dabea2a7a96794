// LibTorch's process-wide switches of arithmetic and threads.
#pragma once

#include "trainer/configuration.hpp"

namespace onebatch {

/// TF32 as asked (off unless precision.allow_tf32), deterministic algorithms as asked, and this rank's part of the cores it may use, unless
/// OMP_NUM_THREADS says otherwise.
void set_up_arithmetic(const Configuration& configuration, int node_local_size);

/// Cores that this process may run on.
[[nodiscard]] int allowed_cores();

}  // namespace onebatch
