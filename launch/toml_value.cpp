#include "launch/toml_value.hpp"

namespace onebatch::launch {

ConfigValue value_of(const toml::node& node) {
  if (const auto* flag = node.as_boolean()) return {flag->get()};
  if (const auto* whole = node.as_integer()) return {whole->get()};
  if (const auto* number = node.as_floating_point()) return {number->get()};
  if (const auto* text = node.as_string()) return {text->get()};
  if (const auto* array = node.as_array()) {
    ConfigList list;
    for (const toml::node& item : *array) list.push_back(value_of(item));
    return {std::move(list)};
  }
  ConfigTable table;
  if (const auto* entries = node.as_table()) {
    for (const auto& [name, entry] : *entries) table.push_back({std::string(name.str()), value_of(entry)});
    return {std::move(table)};
  }
  return {};
}

}  // namespace onebatch::launch
