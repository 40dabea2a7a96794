// What takes a device's memory, by kind, and what would help where it is too little: pure.
#pragma once

#include "trainer/base/profile.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace onebatch {

/// Adds what the trials tell: activations per sample from the largest two sizes that lie apart, and the workspace that
/// is there whatever the size. `memory` holds what lies there before any sample.
void add_trials(MemoryUse& memory, const std::vector<Trial>& trials, std::int64_t resident_bytes);

/// "parameters 10.0 MiB, gradients 10.0 MiB, …", without what is not there.
std::string memory_text(const MemoryUse& memory);

/// "1.5 KiB", "10.0 MiB".
std::string amount(double bytes);

inline constexpr double k_lowered_limit = 0.9;  // of a size that did not fit

/// After `failed_size` samples have run out of memory: `factor` of them, and of the room for a step's samples, is what
/// the rank may use.
void lower_limit(RankProfile& rank, std::int64_t failed_size, double factor);

/// What a rank would keep in the memory of its host, and what that host has left; both in bytes.
struct HostShare {
  std::string host;
  std::int64_t bytes = 0;
  std::int64_t available = 0;
};

/// Of each share whether its host holds it beside those of its other ranks, in 0.8 of what it has left.
std::vector<bool> hosts_hold(const std::vector<HostShare>& shares);

/// Why `least` samples do not fit: what takes the memory, and what would help most; recomputation, where it may.
std::string too_large_text(const RankProfile& rank, std::int64_t least, bool may_recompute);

}  // namespace onebatch
