#include "launch/live_line.hpp"

#include <algorithm>

namespace onebatch::launch {
namespace {

constexpr std::string_view k_between = "  ";

bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80U;
}

std::string joined(const std::vector<LivePart>& parts) {
  std::string text;
  for (const LivePart& part : parts) {
    if (!text.empty()) text += k_between;
    text += part.text;
  }
  return text;
}

std::string cut(const std::string& text, std::size_t columns) {
  std::size_t end = 0;
  for (std::size_t count = 0; end < text.size(); ++end) {
    if (begins_character(text[end]) && count++ == columns) break;
  }
  return text.substr(0, end);
}

}  // namespace

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

std::string fitted(std::vector<LivePart> parts, std::size_t columns) {
  std::erase_if(parts, [](const LivePart& part) { return part.text.empty(); });
  while (parts.size() > 1 && width_of(joined(parts)) > columns)
    parts.erase(std::ranges::min_element(parts, {}, &LivePart::weight));
  return cut(joined(parts), columns);
}

}  // namespace onebatch::launch
