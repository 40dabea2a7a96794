#include "trainer/plan/cost_table.hpp"

#include "trainer/error.hpp"

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

void check(const std::vector<TimedSize>& points) {
  if (points.empty()) throw UserError("a table of step times is empty: give at least one [size, seconds]");
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto& [size, seconds] = points[i];
    if (size < 1) throw UserError("a table of step times holds the size " + std::to_string(size) + ": sizes begin at 1");
    if (!std::isfinite(seconds) || seconds < 0.0)
      throw UserError("the time of size " + std::to_string(size) + " is " + std::to_string(seconds) + ": write seconds, 0 or more");
    if (i > 0 && points[i - 1].size == size) throw UserError("a table of step times holds the size " + std::to_string(size) + " twice");
  }
}

// Through two points, at `size`; never below 0, never falling.
double line_at(const TimedSize& a, const TimedSize& b, std::int64_t size) {
  const double slope = std::max(0.0, (b.seconds - a.seconds) / static_cast<double>(b.size - a.size));
  return std::max(0.0, a.seconds + slope * static_cast<double>(size - a.size));
}

}  // namespace

CostTable::CostTable(std::vector<TimedSize> points) : points_(std::move(points)) {
  std::sort(points_.begin(), points_.end(), [](const TimedSize& a, const TimedSize& b) { return a.size < b.size; });
  check(points_);
  for (std::size_t i = 1; i < points_.size(); ++i) points_[i].seconds = std::max(points_[i].seconds, points_[i - 1].seconds);
}

double CostTable::seconds(std::int64_t size) const {
  if (size <= 0) return 0.0;
  if (points_.size() == 1) return points_.front().seconds;
  const auto above = std::lower_bound(points_.begin(), points_.end(), size, [](const TimedSize& p, std::int64_t s) { return p.size < s; });
  if (above == points_.begin()) return std::min(points_[0].seconds, line_at(points_[0], points_[1], size));
  if (above == points_.end()) return std::max(points_.back().seconds, line_at(points_[points_.size() - 2], points_.back(), size));
  if (above->size == size) return above->seconds;
  return line_at(*(above - 1), *above, size);
}

}  // namespace onebatch
