// What stands before the tensors of a safetensors file. No LibTorch here.
#pragma once

#include "trainer/io/safetensors.hpp"

namespace onebatch {

/// The header's length, the header, and blanks up to a multiple of 8 bytes. `tensors` in the order of their offsets.
std::string safetensors_head(std::span<const SafetensorsEntry> tensors,
                             const std::map<std::string, std::string>& metadata);

}  // namespace onebatch
