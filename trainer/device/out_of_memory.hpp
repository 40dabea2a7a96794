// Whose memory has run out.
#pragma once

#include <cstdint>
#include <exception>

namespace onebatch {

/// Of the host, which is the device's where that is the CPU, and is_out_of_memory() then.
[[nodiscard]] bool is_out_of_host_memory(const std::exception& error);

/// How often LibTorch's allocator on the current CUDA device has refused memory since the device's peak was last reset;
/// 0 without CUDA.
[[nodiscard]] std::int64_t num_cuda_refusals();

}  // namespace onebatch
