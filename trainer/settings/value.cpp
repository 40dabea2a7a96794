#include "trainer/settings/value.hpp"

namespace onebatch {
namespace {

template <typename T>
std::optional<T> held_as(const Value& value) {
  const T* held = std::get_if<T>(&value.held);
  return held != nullptr ? std::optional<T>(*held) : std::nullopt;
}

}  // namespace

std::optional<bool> Value::boolean() const {
  return held_as<bool>(*this);
}

std::optional<std::int64_t> Value::integer() const {
  return held_as<std::int64_t>(*this);
}

std::optional<double> Value::number() const {
  if (const auto whole = integer()) return static_cast<double>(*whole);
  return held_as<double>(*this);
}

std::optional<std::string> Value::text() const {
  return held_as<std::string>(*this);
}

const List* Value::list() const {
  return std::get_if<List>(&held);
}

const Table* Value::table() const {
  return std::get_if<Table>(&held);
}

}  // namespace onebatch
