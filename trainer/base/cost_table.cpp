#include "trainer/base/cost_table.hpp"

#include "trainer/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace onebatch {
namespace {

void check(const std::vector<TimedSize>& points) {
  if (points.empty()) throw UserError("a table of step times is empty: give at least one [size, seconds]");
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto& [size, seconds] = points[i];
    if (size < 1) throw UserError(fmt::format("a table of step times holds the size {}: sizes begin at 1", size));
    if (!std::isfinite(seconds) || seconds < 0.0)
      throw UserError(fmt::format("the time of size {} is {:f}: write seconds, 0 or more", size, seconds));
    if (i > 0 && points[i - 1].size == size)
      throw UserError(fmt::format("a table of step times holds the size {} twice", size));
  }
}

}  // namespace

CostTable::CostTable(std::vector<TimedSize> points) : points_(std::move(points)) {
  std::sort(points_.begin(), points_.end(), [](const TimedSize& a, const TimedSize& b) { return a.size < b.size; });
  check(points_);
  for (std::size_t i = 1; i < points_.size(); ++i)
    points_[i].seconds = std::max(points_[i].seconds, points_[i - 1].seconds);
}

double CostTable::seconds(std::int64_t size) const {
  if (size <= 0) return 0.0;
  const std::size_t next = next_point(size);
  if (next < points_.size() && points_[next].size == size) return points_[next].seconds;
  return line_before(next).at(size);
}

std::size_t CostTable::next_point(std::int64_t size) const {
  const auto next = std::lower_bound(points_.begin(), points_.end(), size,
                                     [](const TimedSize& p, std::int64_t s) { return p.size < s; });
  return static_cast<std::size_t>(next - points_.begin());
}

CostTable::Line CostTable::line_before(std::size_t next) const {
  if (points_.size() == 1) return {points_.front(), 0.0, points_.front().seconds, points_.front().seconds};
  const std::size_t piece = std::min(next > 0 ? next - 1 : 0, points_.size() - 2);
  const TimedSize& a = points_[piece];
  const TimedSize& b = points_[piece + 1];
  const double least = next == points_.size() ? points_.back().seconds : 0.0;
  const double most = next == 0 ? points_.front().seconds : std::numeric_limits<double>::infinity();
  return {a, (b.seconds - a.seconds) / static_cast<double>(b.size - a.size), least, most};
}

}  // namespace onebatch
