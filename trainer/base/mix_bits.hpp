// A counter-based source of random bits: the same everywhere, for any split of the work.
#pragma once

#include <cstdint>

namespace onebatch {

/// splitmix64's finaliser (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014): a bijection of
/// 64 bits whose values at consecutive counters pass as random.
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace onebatch
