// How a rank's share of the global batch limits its micro-batches, where something of every sample is kept for the
// whole step.
#pragma once

#include <cstdint>

namespace onebatch {

/// Exact BatchNorm keeps what lies between BatchNorms of all samples of a rank. A share of n samples fits in
/// micro-batches of b where n * kept_bytes_per_sample + b * bytes_per_sample <= room_bytes.
struct ShareMemory {
  double room_bytes = 0.0;             // for samples
  double kept_bytes_per_sample = 0.0;  // of the share
  double bytes_per_sample = 0.0;       // of a micro-batch, beside that

  /// The largest micro-batch beside a share of `samples`, at most that; 0 where there is no room for the share.
  [[nodiscard]] std::int64_t largest_micro_batch(std::int64_t samples) const;
  bool operator==(const ShareMemory&) const = default;
};

}  // namespace onebatch
