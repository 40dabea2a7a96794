// The devices, and each thread's current one and last error.
#pragma once

#include <cuda_runtime_api.h>

namespace null_gpu {

/// libcuda.so.1, which the runtime loads when it is first asked for devices; null: it is not found.
void* load_driver();
int current_device();
/// Of a device that there is.
int slot_of(int device);
/// Keeps the error as the thread's last, as the real runtime does, and returns it.
cudaError_t fail(cudaError_t error);

}  // namespace null_gpu
