// The time of one micro-batch as a function of its size, from a few measured points.
#pragma once

#include <cstdint>
#include <vector>

namespace onebatch {

struct TimedSize {
  std::int64_t size = 0;  // samples
  double seconds = 0.0;   // of one micro-batch, forward and backward
};

/// T(b) of one rank: linear between its points; outside them the line through the nearest two, slope and value never below 0; one
/// point, that time for every size. The running maximum is taken, so that more samples never take less time. T(0) = 0.
class CostTable {
 public:
  /// `points` need not be sorted. Throws UserError on an empty table, a size below 1, a size twice, a time that is negative or not finite.
  explicit CostTable(std::vector<TimedSize> points);

  [[nodiscard]] double seconds(std::int64_t size) const;
  [[nodiscard]] const std::vector<TimedSize>& points() const { return points_; }

 private:
  std::vector<TimedSize> points_;  // ascending sizes, non-decreasing seconds
};

}  // namespace onebatch
