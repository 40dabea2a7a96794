// Names of tensors, and patterns of them as shells know them: `*` for any text, `?` for one character.
#pragma once

#include <string>
#include <vector>

namespace onebatch {

/// A name matches itself too, whatever characters it has.
bool matches_name(const std::string& pattern, const std::string& name);

/// At most `most` of the names, those first that have the longest piece of text in common with `word`.
std::vector<std::string> names_like(const std::string& word, const std::vector<std::string>& names, std::size_t most);

/// "a, b, c and 4 more".
std::string listed(const std::vector<std::string>& names, std::size_t most = 10);

}  // namespace onebatch
