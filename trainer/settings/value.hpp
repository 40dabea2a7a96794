// A value as a configuration gives it, whatever it was written in: TOML's kinds of values, without TOML's reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace onebatch {

struct ConfigValue;
struct ConfigEntry;
using ConfigList = std::vector<ConfigValue>;
using ConfigTable = std::vector<ConfigEntry>;  // in the order of its names

struct ConfigValue {
  /// monostate: of a kind that no key takes, as a date.
  std::variant<std::monostate, bool, std::int64_t, double, std::string, ConfigList, ConfigTable> held;

  [[nodiscard]] std::optional<bool> boolean() const;
  [[nodiscard]] std::optional<std::int64_t> integer() const;
  /// A whole number is one too.
  [[nodiscard]] std::optional<double> number() const;
  [[nodiscard]] std::optional<std::string> text() const;
  /// None where it is something else; lives as long as the value.
  [[nodiscard]] const ConfigList* list() const;
  [[nodiscard]] const ConfigTable* table() const;
};

struct ConfigEntry {
  std::string name;
  ConfigValue value;
};

}  // namespace onebatch
