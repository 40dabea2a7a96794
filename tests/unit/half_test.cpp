#include "comm/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace onebatch::comm {
namespace {

// The value of a binary16, from the definition in IEEE 754.
double half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double mantissa = (bits & 1023) / 1024.0;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -14) : std::ldexp(1.0 + mantissa, exponent - 15);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(HalfTest, every_finite_half_is_its_value_and_comes_back) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    if ((bits >> 10 & 31) == 31) continue;
    ASSERT_EQ(static_cast<double>(half_to_float(bits)), half_value(bits)) << i;
    ASSERT_EQ(float_to_half(half_to_float(bits)), bits) << i;
  }
}

TEST(HalfTest, rounding_is_to_nearest_even) {
  for (std::uint32_t i = 0; i < 0x7bff; ++i) {
    const auto low = static_cast<std::uint16_t>(i);
    const auto high = static_cast<std::uint16_t>(i + 1);
    const auto middle = static_cast<float>((half_value(low) + half_value(high)) / 2.0);
    ASSERT_EQ(float_to_half(middle), (low & 1) == 0 ? low : high) << i;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 1e9F)), high) << i;
  }
}

TEST(HalfTest, ends_of_the_range) {
  EXPECT_EQ(float_to_half(1e9F), 0x7c00);
  EXPECT_EQ(float_to_half(-INFINITY), 0xfc00);
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(float_to_half(-0.0F), 0x8000);
}

TEST(HalfTest, bfloat16_keeps_the_upper_half_rounded) {
  EXPECT_EQ(float_to_bfloat16(1.0F), 0x3f80);
  EXPECT_EQ(bfloat16_to_float(0x3f80), 1.0F);
  EXPECT_EQ(float_to_bfloat16(1.00390625F), 0x3f80) << "halfway rounds to even";
  EXPECT_EQ(float_to_bfloat16(1.01171875F), 0x3f82) << "halfway rounds to even";
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace onebatch::comm
