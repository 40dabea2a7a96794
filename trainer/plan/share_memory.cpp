#include "trainer/plan/share_memory.hpp"

#include <algorithm>
#include <cmath>

namespace onebatch {

std::int64_t ShareMemory::largest_micro_batch(std::int64_t samples) const {
  constexpr double k_rounding = 1e-12;  // of room: a size that is exactly as large as it fits
  const double left = room_bytes * (1.0 + k_rounding) - static_cast<double>(samples) * kept_bytes_per_sample;
  if (left < 0.0) return 0;
  const double all = static_cast<double>(samples);
  return bytes_per_sample > 0.0 ? static_cast<std::int64_t>(std::min(all, std::floor(left / bytes_per_sample)))
                                : samples;
}

}  // namespace onebatch
