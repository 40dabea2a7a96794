// Whole numbers as people read them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace onebatch::launch {

/// 12345 as "12,345".
inline std::string count_text(std::int64_t count) {
  const std::string digits = fmt::format("{}", count);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const bool third = i > 0 && digits[i - 1] != '-' && (digits.size() - i) % 3 == 0;
    if (third) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace onebatch::launch
