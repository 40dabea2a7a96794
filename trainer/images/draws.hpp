// Random numbers of one sample in one epoch, in the order in which they are asked for.
#pragma once

#include "trainer/base/mix_bits.hpp"

#include <cmath>

namespace onebatch {

class Draws {
 public:
  Draws(std::uint64_t seed, std::int64_t epoch, std::int64_t sample)
      : key_(mix_bits(mix_bits(mix_bits(seed ^ 0x696d61676573ULL) + static_cast<std::uint64_t>(epoch)) ^
                      static_cast<std::uint64_t>(sample))) {}

  std::uint64_t bits() { return mix_bits(key_ + count_++); }
  /// From 0 to below 1, of 53 bits.
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double uniform(double least, double most) { return least + (most - least) * uniform(); }
  /// 0 … count − 1. The remainder's unevenness is below count / 2^64.
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(count));
  }
  bool coin() { return (bits() >> 63) != 0; }
  /// Box and Muller.
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }

 private:
  std::uint64_t key_;
  std::uint64_t count_ = 0;
};

}  // namespace onebatch
