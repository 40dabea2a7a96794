// Of repeated measurements.
#pragma once

#include <algorithm>
#include <cstddef>
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

/// The upper one of the two in the middle where there are two.
inline double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

}  // namespace onebatch::comm
