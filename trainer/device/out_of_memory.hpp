// Whose memory has run out.
#pragma once

#include <exception>

namespace onebatch {

/// Of the host, which is the device's where that is the CPU, and is_out_of_memory() then.
[[nodiscard]] bool is_out_of_host_memory(const std::exception& error);

/// Whether LibTorch's allocator on the current CUDA device has refused memory since the device's peak was last reset;
/// false without CUDA.
[[nodiscard]] bool cuda_allocator_ran_out();

}  // namespace onebatch
