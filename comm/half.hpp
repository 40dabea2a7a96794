// IEEE binary16 and bfloat16 to and from float32, to nearest even: what MPI has no type for.
#pragma once

#include <bit>
#include <cstdint>

namespace onebatch::comm {

float half_to_float(std::uint16_t bits);
std::uint16_t float_to_half(float value);

// In the header, since loops over them are to be vectorised.
inline float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>(is_nan ? (bits >> 16) | 0x40U : rounded);
}

}  // namespace onebatch::comm
