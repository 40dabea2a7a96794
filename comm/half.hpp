// IEEE binary16 and bfloat16 to and from float32, to nearest even: what MPI has no type for.
#pragma once

#include <bit>
#include <cstdint>

namespace onebatch::comm {

// In the header and without branches, since loops over them are to be vectorised. (F16C has instructions for it, but
// not every machine has F16C; without it a compiler's _Float16 calls a function for each.)
inline float half_to_float(std::uint16_t bits) {
  constexpr std::uint32_t k_bias = (127U - 15U) << 23;
  const std::uint32_t magnitude = (bits & 0x7fffU) << 13;
  const std::uint32_t exponent = magnitude & (0x1fU << 23);
  const std::uint32_t normal = magnitude + k_bias;
  const auto subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(normal + (1U << 23)) - 0x1p-14F);
  const std::uint32_t finite = exponent == 0 ? subnormal : normal;
  const std::uint32_t value = exponent == 0x1fU << 23 ? normal + k_bias : finite;
  return std::bit_cast<float>(value | (bits & 0x8000U) << 16);
}

inline std::uint16_t float_to_half(float value) {
  constexpr std::uint32_t k_infinity = 0x7f800000U;
  // Halfway to the next power of two: rounds up to infinity.
  constexpr auto k_too_large = std::bit_cast<std::uint32_t>(65520.0F);
  constexpr auto k_least_normal = std::bit_cast<std::uint32_t>(0x1p-14F);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t normal = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - ((127U - 15U) << 23)) >> 13;
  // A multiple of 2^-24, which is what lies between two floats above 0.5.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  const std::uint32_t finite = magnitude < k_least_normal ? subnormal : normal;
  const std::uint32_t beyond = magnitude > k_infinity ? 0x7e00U : 0x7c00U;
  return static_cast<std::uint16_t>((magnitude < k_too_large ? finite : beyond) | ((bits >> 16) & 0x8000U));
}

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
