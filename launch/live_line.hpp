// The last line of a terminal, which changes in its place: what of it there is room for.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace onebatch::launch {

struct LivePart {
  std::string text;
  int weight = 0;  // where there is no room for all the lightest go first
};

/// The parts side by side, in their order, in at most so many columns; the last that is left is cut where it has to be.
[[nodiscard]] std::string fitted(std::vector<LivePart> parts, std::size_t columns);

/// How many columns a text takes, a character one.
[[nodiscard]] std::size_t width_of(std::string_view text);

}  // namespace onebatch::launch
