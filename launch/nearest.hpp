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

/// The keys ("optimizer.lr") that were most likely meant by `path` ("lr", "optimizer.lrr", "optimiser.lr"): those of
/// the same last part first, at most three; `sections` ("optimizer") where no key is as near. Empty: none.
std::vector<std::string> meant_keys(const std::string& path, const std::vector<std::string>& keys,
                                    const std::vector<std::string>& sections);

}  // namespace onebatch::launch
