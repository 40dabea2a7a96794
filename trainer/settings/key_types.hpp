// Builders for descriptions of keys: one per kind of value. `field` is a pointer to a member of the section, or an
// Option of it.
#pragma once

#include "trainer/settings/key.hpp"
#include "trainer/settings/option.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>

namespace onebatch {

constexpr std::int64_t k_any = INT64_MAX;

template <typename Field>
struct FieldOf;
template <typename S, typename T>
struct FieldOf<T S::*> {
  using Section = S;
  using Type = T;
};
template <typename S, typename T>
struct FieldOf<Option<S, T>> {
  using Section = S;
  using Type = T;
};
template <typename Field>
using SectionOf = typename FieldOf<Field>::Section;
template <typename Field>
using TypeOf = typename FieldOf<Field>::Type;

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
std::optional<std::vector<std::int64_t>> read_integers(const ConfigValue& value, std::int64_t least);
std::string integers_text(const std::vector<std::int64_t>& values);
/// A list of names, at least one; none where it is something else.
std::optional<std::vector<std::string>> read_names(const ConfigValue& value);
std::string names_text(const std::vector<std::string>& names);

struct Range {
  double least = -HUGE_VAL;
  double most = HUGE_VAL;
  bool open = false;  // the least itself is not allowed
};

std::string range_text(const Range& range);
/// A finite number in the range; none where it is something else.
std::optional<double> read_number(const ConfigValue& value, const Range& range);
/// So many numbers (0: any number of them) in the range; none where it is something else.
std::optional<std::vector<double>> read_numbers(const ConfigValue& value, std::size_t count, const Range& range);

template <typename Field>
KeyOf<SectionOf<Field>> integer_key(KeyText about, std::int64_t least, std::int64_t most, Field field) {
  using Section = SectionOf<Field>;
  const std::string values =
      "a whole number from " + std::to_string(least) + (most == k_any ? "" : " to " + std::to_string(most));
  return {std::move(about), values,
          [=](const ConfigValue& value, Section& section) -> Complaint {
            const auto number = value.integer();
            if (!number || *number < least || *number > most) return "write " + values;
            std::invoke(field, section) = static_cast<TypeOf<Field>>(*number);
            return {};
          },
          [=](const Section& section) { return std::to_string(std::invoke(field, section)); }};
}

/// Absent stands for "auto" (or, with an empty word, for not given).
template <typename Field>
KeyOf<SectionOf<Field>> optional_integer_key(KeyText about, std::int64_t least, const std::string& absent_word,
                                             Field field) {
  using Section = SectionOf<Field>;
  const std::string values =
      (absent_word.empty() ? "" : quoted(absent_word) + " or ") + "a whole number from " + std::to_string(least);
  return {std::move(about), values,
          [=](const ConfigValue& value, Section& section) -> Complaint {
            const auto number = value.integer();
            const bool absent = !absent_word.empty() && value.text() == absent_word;
            if (!absent && (!number || *number < least)) return "write " + values;
            std::invoke(field, section) = absent ? std::nullopt : number;
            return {};
          },
          [=](const Section& section) {
            const auto& number = std::invoke(field, section);
            return number ? std::to_string(*number) : (absent_word.empty() ? "" : quoted(absent_word));
          }};
}

/// A number, or one that may be left out.
template <typename Field>
KeyOf<SectionOf<Field>> number_key(KeyText about, Range range, Field field) {
  using Section = SectionOf<Field>;
  const std::string values = range_text(range);
  return {std::move(about), values,
          [=](const ConfigValue& value, Section& section) -> Complaint {
            const auto number = read_number(value, range);
            if (!number) return "write " + values;
            std::invoke(field, section) = *number;
            return {};
          },
          [=](const Section& section) {
            const std::optional<double> number = std::invoke(field, section);
            return number ? number_text(*number) : std::string();
          }};
}

/// A list of numbers: a std::vector of any length, or a std::array.
template <typename Field>
KeyOf<SectionOf<Field>> numbers_key(KeyText about, Range range, Field field) {
  using Section = SectionOf<Field>;
  constexpr bool any = requires(TypeOf<Field> list) {
    list.resize(std::size_t{1});
  };
  const std::size_t count = any ? 0 : TypeOf<Field>{}.size();
  const std::string values =
      "a list of " + (count > 0 ? std::to_string(count) + " numbers, each " : "numbers, each ") + range_text(range);
  return {std::move(about), values,
          [=](const ConfigValue& value, Section& section) -> Complaint {
            const auto numbers = read_numbers(value, count, range);
            if (!numbers) return "write " + values;
            auto& list = std::invoke(field, section);
            if constexpr (any) list.resize(numbers->size());
            std::copy(numbers->begin(), numbers->end(), list.begin());
            return {};
          },
          [=](const Section& section) {
            std::string text = "[";
            for (const double number : std::invoke(field, section))
              text += (text.size() > 1 ? ", " : "") + number_text(number);
            return text + "]";
          }};
}

template <typename Field>
KeyOf<SectionOf<Field>> boolean_key(KeyText about, Field field) {
  using Section = SectionOf<Field>;
  return {std::move(about), "true or false",
          [=](const ConfigValue& value, Section& section) -> Complaint {
            if (!value.boolean()) return "write true or false";
            std::invoke(field, section) = *value.boolean();
            return {};
          },
          [=](const Section& section) { return std::string(std::invoke(field, section) ? "true" : "false"); }};
}

template <typename Field>
KeyOf<SectionOf<Field>> text_key(KeyText about, Field field) {
  using Section = SectionOf<Field>;
  return {std::move(about), "a text in quotes",
          [=](const ConfigValue& value, Section& section) -> Complaint {
            if (!value.text()) return "write a text in quotes";
            std::invoke(field, section) = *value.text();
            return {};
          },
          [=](const Section& section) { return quoted(std::invoke(field, section)); }};
}

template <typename Field>
KeyOf<SectionOf<Field>> choice_key(KeyText about, const std::vector<Choice<TypeOf<Field>>>& choices, Field field) {
  using Section = SectionOf<Field>;
  std::string values;
  for (const auto& choice : choices) values += (values.empty() ? "" : " or ") + quoted(choice.word);
  return {std::move(about), values,
          [=](const ConfigValue& value, Section& section) -> Complaint {
            const auto chosen =
                std::ranges::find_if(choices, [&](const auto& choice) { return value.text() == choice.word; });
            if (chosen == choices.end()) return "write " + values;
            std::invoke(field, section) = chosen->value;
            return {};
          },
          [=](const Section& section) {
            const auto shown = std::ranges::find_if(
                choices, [&](const auto& choice) { return std::invoke(field, section) == choice.value; });
            return shown == choices.end() ? std::string() : quoted(shown->word);
          }};
}

template <typename Field>
KeyOf<SectionOf<Field>> integers_key(KeyText about, std::int64_t least, Field field) {
  using Section = SectionOf<Field>;
  const std::string values = "a list of whole numbers from " + std::to_string(least);
  return {std::move(about), values,
          [=](const ConfigValue& value, Section& section) -> Complaint {
            const auto list = read_integers(value, least);
            if (!list || list->empty()) return "write " + values;
            std::invoke(field, section) = *list;
            return {};
          },
          [=](const Section& section) {  // an empty list is no value that may be written
            const auto& list = std::invoke(field, section);
            return list.empty() ? std::string() : integers_text(list);
          }};
}

template <typename Field>
KeyOf<SectionOf<Field>> names_key(KeyText about, Field field) {
  using Section = SectionOf<Field>;
  return {std::move(about), "a list of names",
          [=](const ConfigValue& value, Section& section) -> Complaint {
            const auto names = read_names(value);
            if (!names) return "write a list of names, as [\"x\"]";
            std::invoke(field, section) = *names;
            return {};
          },
          [=](const Section& section) {
            const auto& names = std::invoke(field, section);
            return names.empty() ? std::string() : names_text(names);
          }};
}

}  // namespace onebatch
