// Every rank's random inputs, made by every rank: what a collective must answer is computed without it.
#pragma once

#include "comm/communicator.hpp"
#include "comm/half.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace onebatch::testing {

using comm::ReduceOp;
using comm::ScalarType;

inline double read_element(const std::vector<std::byte>& buffer, std::size_t i, ScalarType type) {
  const std::byte* at = buffer.data() + i * comm::size_of(type);
  const auto as = [&]<typename T>(T value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (type) {
    case ScalarType::uint8: return as(std::uint8_t{});
    case ScalarType::int32: return as(std::int32_t{});
    case ScalarType::int64: return static_cast<double>(as(std::int64_t{}));
    case ScalarType::float16: return static_cast<double>(comm::half_to_float(as(std::uint16_t{})));
    case ScalarType::bfloat16: return static_cast<double>(comm::bfloat16_to_float(as(std::uint16_t{})));
    case ScalarType::float32: return static_cast<double>(as(float{}));
    case ScalarType::float64: return as(double{});
  }
  return 0.0;
}

inline void write_element(std::vector<std::byte>& buffer, std::size_t i, ScalarType type, double value) {
  std::byte* at = buffer.data() + i * comm::size_of(type);
  const auto put = [&](auto converted) { std::memcpy(at, &converted, sizeof(converted)); };
  switch (type) {
    case ScalarType::uint8: return put(static_cast<std::uint8_t>(value));
    case ScalarType::int32: return put(static_cast<std::int32_t>(value));
    case ScalarType::int64: return put(static_cast<std::int64_t>(value));
    case ScalarType::float16: return put(comm::float_to_half(static_cast<float>(value)));
    case ScalarType::bfloat16: return put(comm::float_to_bfloat16(static_cast<float>(value)));
    case ScalarType::float32: return put(static_cast<float>(value));
    case ScalarType::float64: return put(value);
  }
}

/// Whole numbers small enough that every sum is exact in every type: 0 … 15.
inline std::vector<std::byte> exact_input(unsigned seed, int rank, std::size_t count, ScalarType type) {
  std::mt19937 generator(seed * 131 + static_cast<unsigned>(rank));
  std::vector<std::byte> buffer(count * comm::size_of(type));
  for (std::size_t i = 0; i < count; ++i) write_element(buffer, i, type, static_cast<double>(generator() % 16));
  return buffer;
}

inline double combine(double a, double b, ReduceOp op) {
  return op == ReduceOp::sum ? a + b : (op == ReduceOp::min ? std::min(a, b) : std::max(a, b));
}

/// All-reduces of random sizes, types and operations against a reduction done by hand.
inline void expect_reductions_match(comm::Communicator& communicator, int cases) {
  constexpr ScalarType k_types[] = {ScalarType::uint8,    ScalarType::int32,   ScalarType::int64,  ScalarType::float16,
                                    ScalarType::bfloat16, ScalarType::float32, ScalarType::float64};
  std::mt19937 generator(17);
  for (int i = 0; i < cases; ++i) {
    const auto seed = static_cast<unsigned>(generator());
    const ScalarType type = k_types[generator() % 7];
    const auto op = static_cast<ReduceOp>(generator() % 3);
    const std::size_t count = i < 3 ? static_cast<std::size_t>(i) : generator() % (i % 50 == 0 ? 200000 : 300);
    auto buffer = exact_input(seed, communicator.rank(), count, type);
    communicator.all_reduce(buffer.data(), count, type, op);
    auto expected = exact_input(seed, 0, count, type);
    for (int rank = 1; rank < communicator.size(); ++rank) {
      const auto other = exact_input(seed, rank, count, type);
      for (std::size_t k = 0; k < count; ++k)
        write_element(expected, k, type, combine(read_element(expected, k, type), read_element(other, k, type), op));
    }
    ASSERT_EQ(buffer, expected) << "case " << i << " type " << static_cast<int>(type) << " count " << count;
  }
}

}  // namespace onebatch::testing
