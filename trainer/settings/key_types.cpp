#include "trainer/settings/key_types.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdio>

namespace onebatch {
namespace {

// TOML's way to write a character that may not stand in a text.
std::string control_escape(char c) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "\\u%04X", static_cast<unsigned>(static_cast<unsigned char>(c)));
  return text.data();
}

}  // namespace

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      result += control_escape(c);
    else
      result += c;
  }
  return result + "\"";
}

std::string number_text(double value) {
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  std::string result(text.data(), end);
  if (result.find_first_of(".en") == std::string::npos) result += ".0";  // TOML tells floats by their point
  return result;
}

std::optional<std::int64_t> parse_bytes(const std::string& text) {
  struct Unit {
    const char* name;
    double bytes;
  };
  constexpr std::array<Unit, 8> k_units = {
      {{"", 1}, {"B", 1}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}}};
  constexpr double k_beyond_int64 = 9223372036854775808.0;
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value > 0.0)) return std::nullopt;
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size() : unit.find_first_not_of(' '));
  for (const Unit& known : k_units) {
    if (unit != known.name) continue;
    const double bytes = value * known.bytes;
    return bytes >= 1.0 && bytes < k_beyond_int64 ? std::optional(static_cast<std::int64_t>(bytes)) : std::nullopt;
  }
  return std::nullopt;
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes % 1048576 == 0) return quoted(fmt::format("{}MiB", bytes / 1048576));
  return fmt::to_string(bytes);
}

std::optional<std::vector<std::int64_t>> read_integers(const ConfigValue& value, std::int64_t least) {
  const ConfigList* list = value.list();
  if (list == nullptr) return std::nullopt;
  std::vector<std::int64_t> values;
  for (const ConfigValue& item : *list) {
    const auto number = item.integer();
    if (!number || *number < least) return std::nullopt;
    values.push_back(*number);
  }
  return values;
}

std::string integers_text(const std::vector<std::int64_t>& values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) text += fmt::format("{}{}", i > 0 ? ", " : "", values[i]);
  return text + "]";
}

std::string range_text(const Range& range) {
  std::string text = "a number";
  if (std::isfinite(range.least)) text += (range.open ? " above " : " from ") + number_text(range.least);
  if (std::isfinite(range.most)) text += " up to " + number_text(range.most);
  return text;
}

std::optional<double> read_number(const ConfigValue& value, const Range& range) {
  const auto number = value.number();
  if (!number || !std::isfinite(*number) || *number > range.most) return std::nullopt;
  return (range.open ? *number > range.least : *number >= range.least) ? number : std::nullopt;
}

std::optional<std::vector<double>> read_numbers(const ConfigValue& value, std::size_t count, const Range& range) {
  const ConfigList* list = value.list();
  if (list == nullptr || (count > 0 && list->size() != count)) return std::nullopt;
  std::vector<double> numbers;
  for (const ConfigValue& item : *list) {
    const auto number = read_number(item, range);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

std::optional<std::vector<std::string>> read_names(const ConfigValue& value) {
  const ConfigList* list = value.list();
  if (list == nullptr || list->empty()) return std::nullopt;
  std::vector<std::string> names;
  for (const ConfigValue& item : *list) {
    const auto name = item.text();
    if (!name || name->empty()) return std::nullopt;
    names.push_back(*name);
  }
  return names;
}

std::string names_text(const std::vector<std::string>& names) {
  std::string text = "[";
  for (const std::string& name : names) text += (text.size() > 1 ? ", " : "") + quoted(name);
  return text + "]";
}

}  // namespace onebatch
