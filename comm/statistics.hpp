// Of repeated measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace onebatch::comm {

/// The value that `part` (0 to 1) of them lie below, of at least one.
inline double quantile(std::vector<double> values, double part) {
  const auto index = static_cast<std::size_t>(part * static_cast<double>(values.size()));
  const auto found = values.begin() + static_cast<std::ptrdiff_t>(std::min(index, values.size() - 1));
  std::nth_element(values.begin(), found, values.end());
  return *found;
}

/// The same; where `part` lies between two of them, their mean.
inline double quantile_between(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  const double within = part * static_cast<double>(values.size());
  const std::size_t upper = std::min(values.size() - 1, static_cast<std::size_t>(within));
  const bool between = upper > 0 && within == static_cast<double>(upper);
  return between ? std::midpoint(values[upper - 1], values[upper]) : values[upper];
}

/// The upper one of the two in the middle where there are two.
inline double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

}  // namespace onebatch::comm
