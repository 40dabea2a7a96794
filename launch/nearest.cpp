#include "launch/nearest.hpp"

#include <algorithm>
#include <iterator>
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

namespace {

std::string last_part(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

std::vector<std::string> keys_that_end_in(const std::string& name, const std::vector<std::string>& keys) {
  std::vector<std::string> found;
  std::ranges::copy_if(keys, std::back_inserter(found), [&](const std::string& key) { return last_part(key) == name; });
  return found;
}

}  // namespace

std::vector<std::string> meant_keys(const std::string& path, const std::vector<std::string>& keys,
                                    const std::vector<std::string>& sections) {
  constexpr std::size_t k_most = 3;
  std::vector<std::string> same = keys_that_end_in(last_part(path), keys);
  std::ranges::stable_sort(same, {}, [&](const std::string& key) { return edit_distance(path, key); });
  // "modle.kind": one of the many kinds is much nearer than the others.
  if (!same.empty() && (same.size() == 1 || edit_distance(path, same[0]) + 1 < edit_distance(path, same[1])))
    return {same.front()};
  if (!same.empty()) return {same.begin(), same.begin() + static_cast<std::ptrdiff_t>(std::min(k_most, same.size()))};
  std::vector<std::string> known = sections;
  known.insert(known.end(), keys.begin(), keys.end());
  if (const auto meant = nearest(path, known)) return {*meant};
  std::vector<std::string> names;
  std::ranges::transform(keys, std::back_inserter(names), last_part);
  if (const auto name = nearest(last_part(path), names)) {
    same = keys_that_end_in(*name, keys);
    return {same.begin(), same.begin() + static_cast<std::ptrdiff_t>(std::min(k_most, same.size()))};
  }
  return {};
}

}  // namespace onebatch::launch
