#include "trainer/base/name_patterns.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace onebatch {
namespace {

std::size_t longest_common_piece(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1, 0);
  std::size_t longest = 0;
  for (const char letter : a) {
    std::vector<std::size_t> row(b.size() + 1, 0);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = letter == b[j - 1] ? before[j - 1] + 1 : 0;
      longest = std::max(longest, row[j]);
    }
    before = std::move(row);
  }
  return longest;
}

}  // namespace

bool matches_name(const std::string& pattern, const std::string& name) {
  return pattern == name || ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::vector<std::string> names_like(const std::string& word, const std::vector<std::string>& names, std::size_t most) {
  constexpr std::size_t k_longest = 200;  // nobody mistypes a name of that length
  const std::string sought = word.substr(0, k_longest);
  std::vector<std::size_t> common;
  for (const std::string& name : names) common.push_back(longest_common_piece(sought, name.substr(0, k_longest)));
  std::vector<std::size_t> order(names.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return common[i]; });
  std::vector<std::string> like;
  for (std::size_t i = 0; i < std::min(most, order.size()); ++i) like.push_back(names[order[i]]);
  return like;
}

std::string listed(const std::vector<std::string>& names, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) text += (i > 0 ? ", " : "") + names[i];
  return names.size() <= most ? text : fmt::format("{} and {} more", text, names.size() - most);
}

}  // namespace onebatch
