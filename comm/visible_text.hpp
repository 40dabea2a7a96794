// Text from outside (keys, names, files, other hosts), made fit for a terminal or a picture: no name can move the
// cursor or hide what stands beside it. Used by every storey, so a header alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace onebatch::comm {

/// How many bytes the printable character takes that `text` begins with: 0 where it begins with a control character
/// (C0, DEL, C1), with what is no UTF-8, or with what XML forbids. `text` is not empty.
inline std::size_t printable_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t length = first >= 0xf0 ? 4 : (first >= 0xe0 ? 3 : 2);
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  std::uint32_t code = first & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::array<std::uint32_t, 5> k_least = {0, 0, 0xa0, 0x800, 0x10000};  // of that length, C1 left out
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < k_least[length] || surrogate || code == 0xfffe || code == 0xffff || code > 0x10ffff ? 0 : length;
}

/// Line ends stay; every other byte that is not printable becomes "\x1b" and the like.
inline std::string visible_text(std::string_view text) {
  constexpr std::string_view k_digits = "0123456789abcdef";
  std::string visible;
  visible.reserve(text.size());
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text.front());
    const std::size_t length = first == '\n' ? 1 : printable_length(text);
    if (length == 0) {
      visible += "\\x";
      visible += k_digits[first >> 4];
      visible += k_digits[first & 15];
    } else {
      visible += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return visible;
}

/// visible_text() as HTML and XML show it, between tags and in attributes.
inline std::string markup_text(std::string_view text) {
  std::string markup;
  for (const char c : visible_text(text)) {
    switch (c) {
      case '&': markup += "&amp;"; break;
      case '<': markup += "&lt;"; break;
      case '>': markup += "&gt;"; break;
      case '"': markup += "&quot;"; break;
      case '\'': markup += "&#39;"; break;
      default: markup += c;
    }
  }
  return markup;
}

}  // namespace onebatch::comm
