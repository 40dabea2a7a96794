#include "launch/nearest.hpp"

#include <algorithm>
#include <numeric>

namespace onebatch::launch {

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest(const std::string& word, const std::vector<std::string>& known) {
  constexpr std::size_t k_longest = 200;  // nobody mistypes a key of that length
  std::optional<std::string> best;
  std::size_t least = std::max<std::size_t>(3, word.size() / 3) + 1;
  if (word.size() > k_longest) return best;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace onebatch::launch
