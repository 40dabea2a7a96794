// The devices, and each thread's current one and last error.
#pragma once

#include <cuda_runtime_api.h>

namespace null_gpu {

int current_device();
/// Keeps the error as the thread's last, as the real runtime does, and returns it.
cudaError_t fail(cudaError_t error);

}  // namespace null_gpu
