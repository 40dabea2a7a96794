// Numbers in text, as printf writes them.
#pragma once

#include <array>
#include <cstdio>
#include <string>

namespace onebatch {

/// What std::snprintf makes of them; at most 511 characters.
template <typename... Values>
std::string formatted(const char* format, Values... values) {
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

}  // namespace onebatch
