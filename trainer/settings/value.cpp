#include "trainer/settings/value.hpp"

namespace onebatch {
namespace {

template <typename T>
std::optional<T> held_as(const ConfigValue& value) {
  const T* held = std::get_if<T>(&value.held);
  return held != nullptr ? std::optional<T>(*held) : std::nullopt;
}

}  // namespace

std::optional<bool> ConfigValue::boolean() const {
  return held_as<bool>(*this);
}

std::optional<std::int64_t> ConfigValue::integer() const {
  return held_as<std::int64_t>(*this);
}

std::optional<double> ConfigValue::number() const {
  if (const auto whole = integer()) return static_cast<double>(*whole);
  return held_as<double>(*this);
}

std::optional<std::string> ConfigValue::text() const {
  return held_as<std::string>(*this);
}

const ConfigList* ConfigValue::list() const {
  return std::get_if<ConfigList>(&held);
}

const ConfigTable* ConfigValue::table() const {
  return std::get_if<ConfigTable>(&held);
}

}  // namespace onebatch
