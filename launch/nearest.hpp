// The known word that a mistyped one was most likely meant to be.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace onebatch::launch {

/// Levenshtein's distance: insertions, deletions and replacements.
std::size_t edit_distance(const std::string& a, const std::string& b);
/// None where all are too far away to be meant.
std::optional<std::string> nearest(const std::string& word, const std::vector<std::string>& known);

}  // namespace onebatch::launch
