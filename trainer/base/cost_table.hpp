// The time of one micro-batch as a function of its size, from a few measured points.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace onebatch {

struct TimedSize {
  std::int64_t size = 0;  // samples
  double seconds = 0.0;   // of one micro-batch, forward and backward
};

/// T(b) of one rank: linear between its points; outside them the line through the nearest two, slope and value never
/// below 0; one point, that time for every size. The running maximum is taken, so that more samples never take less
/// time. T(0) = 0.
class CostTable {
 public:
  /// `points` need not be sorted. Throws UserError on an empty table, a size below 1, a size twice, a time that is
  /// negative or not finite.
  explicit CostTable(std::vector<TimedSize> points);

  /// Of no samples: 0.
  [[nodiscard]] double seconds(std::int64_t size) const;
  /// `visit(size, seconds(size))` for all sizes from `first`, at least 1, to `last`: quicker than asking for each.
  template <typename Visit>
  void visit(std::int64_t first, std::int64_t last, const Visit& visit) const {
    for (std::size_t next = next_point(first); first <= last; ++next) {
      const std::int64_t end = next < points_.size() ? std::min(last, points_[next].size - 1) : last;
      if (first <= end) {
        for (const Line line = line_before(next); first <= end; ++first) visit(first, line.at(first));
      }
      if (first <= last && next < points_.size()) visit(first++, points_[next].seconds);
    }
  }
  [[nodiscard]] const std::vector<TimedSize>& points() const { return points_; }

 private:
  struct Line {
    TimedSize begin;
    double slope;
    double least;
    double most;
    [[nodiscard]] double at(std::int64_t size) const {
      return std::min(most, std::max(least, begin.seconds + slope * static_cast<double>(size - begin.size)));
    }
  };
  // The first whose size is not less.
  [[nodiscard]] std::size_t next_point(std::int64_t size) const;
  // Of the sizes between point `next` and the one before it, where there are such.
  [[nodiscard]] Line line_before(std::size_t next) const;

  std::vector<TimedSize> points_;  // ascending sizes, non-decreasing seconds
};

}  // namespace onebatch
