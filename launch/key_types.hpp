// Builders for the entries of the key table: one per kind of value.
#pragma once

#include "launch/config_keys.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

namespace onebatch::launch {

template <typename Enum>
struct Choice {
  const char* word;
  Enum value;
};

std::string quoted(const std::string& text);
std::string number_text(double value);
/// "512MiB", "2GB", "1048576" to bytes; none where it is no size.
std::optional<std::int64_t> parse_bytes(const std::string& text);
std::string bytes_text(std::int64_t bytes);
/// A list of whole numbers from `least`; none where it is something else.
std::optional<std::vector<std::int64_t>> read_integers(const toml::node& node, std::int64_t least);
std::string integers_text(const std::vector<std::int64_t>& values);

/// `field(configuration)` returns a reference to the member, which is const where the configuration is.
template <typename Field>
ConfigKey integer_key(std::string path, std::int64_t least, std::int64_t most, Field field) {
  const std::string values = "a whole number " + (most == INT64_MAX ? "from " + std::to_string(least)
                                                                    : "from " + std::to_string(least) + " to " + std::to_string(most));
  return {path, values,
          [=](const toml::node& node, Configuration& c) -> Complaint {
            const auto value = node.value_exact<std::int64_t>();
            if (!value || *value < least || *value > most) return "write " + values;
            field(c) = static_cast<std::remove_reference_t<decltype(field(c))>>(*value);
            return {};
          },
          [=](const Configuration& c) { return std::to_string(field(c)); }};
}

/// Absent stands for "auto" (or, with an empty word, for not given).
template <typename Field>
ConfigKey optional_integer_key(std::string path, std::int64_t least, std::string absent_word, Field field) {
  const std::string values = (absent_word.empty() ? "" : quoted(absent_word) + " or ") + "a whole number from " + std::to_string(least);
  return {path, values,
          [=](const toml::node& node, Configuration& c) -> Complaint {
            if (!absent_word.empty() && node.value<std::string>() == absent_word) {
              field(c).reset();
              return {};
            }
            const auto value = node.value_exact<std::int64_t>();
            if (!value || *value < least) return "write " + values;
            field(c) = *value;
            return {};
          },
          [=](const Configuration& c) {
            const auto& value = field(c);
            return value ? std::to_string(*value) : (absent_word.empty() ? "" : quoted(absent_word));
          }};
}

struct Range {
  double least = -HUGE_VAL;
  double most = HUGE_VAL;
  bool open = false;  // the least itself is not allowed
};

std::string range_text(const Range& range);
bool within(const Range& range, double value);

template <typename Field>
ConfigKey number_key(std::string path, Range range, Field field) {
  const std::string values = range_text(range);
  return {path, values,
          [=](const toml::node& node, Configuration& c) -> Complaint {
            const auto value = node.value<double>();
            if (!node.is_number() || !value || !std::isfinite(*value) || !within(range, *value)) return "write " + values;
            field(c) = *value;
            return {};
          },
          [=](const Configuration& c) {
            if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field(c))>, std::optional<double>>) {
              const auto& value = field(c);
              return value ? number_text(*value) : std::string();
            } else {
              return number_text(field(c));
            }
          }};
}

template <typename Field>
ConfigKey boolean_key(std::string path, Field field) {
  return {path, "true or false",
          [=](const toml::node& node, Configuration& c) -> Complaint {
            const auto value = node.value_exact<bool>();
            if (!value) return "write true or false";
            field(c) = *value;
            return {};
          },
          [=](const Configuration& c) { return std::string(field(c) ? "true" : "false"); }};
}

template <typename Field>
ConfigKey text_key(std::string path, Field field) {
  return {path, "a text in quotes",
          [=](const toml::node& node, Configuration& c) -> Complaint {
            const auto value = node.value_exact<std::string>();
            if (!value) return "write a text in quotes";
            field(c) = *value;
            return {};
          },
          [=](const Configuration& c) { return quoted(field(c)); }};
}

/// `later`: words of the design that this version does not have.
template <typename Enum, typename Field>
ConfigKey choice_key(std::string path, std::vector<Choice<Enum>> choices, std::vector<std::string> later, Field field) {
  std::string values;
  for (const auto& choice : choices) values += (values.empty() ? "" : " or ") + quoted(choice.word);
  return {path, values,
          [=](const toml::node& node, Configuration& c) -> Complaint {
            const auto word = node.value_exact<std::string>();
            for (const auto& choice : choices) {
              if (word && *word == choice.word) {
                field(c) = choice.value;
                return {};
              }
            }
            for (const auto& unknown_yet : later) {
              if (word && *word == unknown_yet) return quoted(*word) + " is not in this version; write " + values;
            }
            return "write " + values;
          },
          [=](const Configuration& c) {
            for (const auto& choice : choices) {
              if (field(c) == choice.value) return quoted(choice.word);
            }
            return std::string();
          }};
}

template <typename Field>
ConfigKey integers_key(std::string path, std::int64_t least, Field field) {
  const std::string values = "a list of whole numbers from " + std::to_string(least);
  return {path, values,
          [=](const toml::node& node, Configuration& c) -> Complaint {
            const auto list = read_integers(node, least);
            if (!list || list->empty()) return "write " + values;
            field(c) = *list;
            return {};
          },
          [=](const Configuration& c) { return integers_text(field(c)); }};
}

/// A list of names, at least one.
template <typename Field>
ConfigKey names_key(std::string path, Field field) {
  return {path, "a list of names",
          [=](const toml::node& node, Configuration& c) -> Complaint {
            const toml::array* list = node.as_array();
            std::vector<std::string> names;
            if (list != nullptr) {
              for (const toml::node& item : *list) names.push_back(item.value_exact<std::string>().value_or(""));
            }
            if (names.empty() || std::find(names.begin(), names.end(), "") != names.end()) return "write a list of names, as [\"x\"]";
            field(c) = names;
            return {};
          },
          [=](const Configuration& c) {
            std::string text = "[";
            for (const std::string& name : field(c)) text += (text.size() > 1 ? ", " : "") + quoted(name);
            return text + "]";
          }};
}

}  // namespace onebatch::launch
