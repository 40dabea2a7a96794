// A value as a configuration gives it, whatever it was written in: TOML's kinds of values, without TOML's reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace onebatch {

struct Value;
struct Entry;
using List = std::vector<Value>;
using Table = std::vector<Entry>;  // in the order of its names

struct Value {
  /// monostate: of a kind that no key takes, as a date.
  std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Table> held;

  [[nodiscard]] std::optional<bool> boolean() const;
  [[nodiscard]] std::optional<std::int64_t> integer() const;
  /// A whole number is one too.
  [[nodiscard]] std::optional<double> number() const;
  [[nodiscard]] std::optional<std::string> text() const;
  /// None where it is something else; lives as long as the value.
  [[nodiscard]] const List* list() const;
  [[nodiscard]] const Table* table() const;
};

struct Entry {
  std::string name;
  Value value;
};

}  // namespace onebatch
