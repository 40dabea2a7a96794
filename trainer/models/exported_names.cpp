#include "trainer/models/exported_names.hpp"

#include "trainer/models/exported_schema.hpp"

namespace onebatch {

void GraphNames::check_free(const std::string& name, const JsonReader& where) const {
  if (slots_.contains(name) || fixed_.contains(name)) where.fail("makes \"" + name + "\", which is there already");
}

Slot GraphNames::define(const std::string& name, const JsonReader& where) {
  check_free(name, where);
  slots_.emplace(name, next_);
  return next_++;
}

void GraphNames::define_fixed(const std::string& name, const at::Tensor& tensor, const JsonReader& where) {
  check_free(name, where);
  fixed_.emplace(name, tensor);
}

Operand GraphNames::define_own() {
  Operand operand;
  operand.form = Operand::Form::value;
  operand.slot = next_++;
  return operand;
}

Operand GraphNames::read(const std::string& name, const JsonReader& where) const {
  Operand operand;
  if (const auto known = fixed_.find(name); known != fixed_.end()) {
    operand.constant = known->second;
    return operand;
  }
  const auto slot = slots_.find(name);
  if (slot == slots_.end()) where.fail("reads \"" + name + "\", which no call before it makes");
  operand.form = Operand::Form::value;
  operand.slot = slot->second;
  return operand;
}

at::Tensor GraphNames::fixed(const std::string& name) const {
  const auto found = fixed_.find(name);
  return found == fixed_.end() ? at::Tensor() : found->second;
}

std::optional<JsonReader> GraphNames::described(const std::string& name) const {
  const auto values = graph_.json().find("tensor_values");
  if (values == graph_.json().end() || !values->is_object()) return std::nullopt;
  const auto value = values->find(name);
  if (value == values->end()) return std::nullopt;
  return JsonReader(*value, graph_.place() + ": the value " + name);
}

std::optional<at::ScalarType> GraphNames::type_of(const std::string& name) const {
  const auto value = described(name);
  return value ? std::optional(scalar_type_in(value->field("dtype"))) : std::nullopt;
}

std::optional<JsonReader> GraphNames::sizes_of(const std::string& name) const {
  const auto value = described(name);
  return value ? std::optional(value->field("sizes")) : std::nullopt;
}

}  // namespace onebatch
