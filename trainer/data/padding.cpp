#include "trainer/data/padding.hpp"

#include <algorithm>

namespace onebatch {

std::int64_t longest_of(const Dataset& data, std::span<const std::int64_t> samples) {
  const auto lengths = data.lengths();
  std::int64_t longest = 0;
  if (lengths.empty()) return longest;
  for (const std::int64_t sample : samples) {
    if (sample >= 0 && sample < data.size()) longest = std::max(longest, lengths[static_cast<std::size_t>(sample)]);
  }
  return longest;
}

std::int64_t longest_of(const Dataset& data) {
  const auto lengths = data.lengths();
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

}  // namespace onebatch
