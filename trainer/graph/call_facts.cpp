#include "trainer/graph/call_facts.hpp"

#include "trainer/models/keyed_randomness.hpp"

#include <algorithm>
#include <set>

namespace onebatch {
namespace {

bool is_true(const c10::IValue* value) {
  return value != nullptr && value->isBool() && value->toBool();
}

// None says nothing.
bool is_false(const c10::IValue* value) {
  return value != nullptr && value->isBool() && !value->toBool();
}

}  // namespace

const c10::IValue* argument_named(const c10::OperatorHandle& op, Arguments given, const char* name) {
  const auto index = op.schema().argumentIndexWithName(name);
  return index && static_cast<std::size_t>(*index) < given.size() ? &given[static_cast<std::size_t>(*index)] : nullptr;
}

bool is_optional_tensors(const c10::IValue& value) {
  if (!value.isList() || value.isTensorList()) return false;
  const auto type = value.toListRef().empty() ? nullptr : value.toList().elementType();
  return type != nullptr && type->isSubtypeOf(*c10::OptionalType::ofTensor());
}

bool overwrites(const c10::OperatorHandle& op) {
  static const std::set<std::string> names = {"aten::fill_", "aten::zero_", "aten::copy_"};
  return names.contains(op.operator_name().name);
}

bool draws_unkeyed(const c10::OperatorHandle& op, Arguments given) {
  if (!op.hasTag(at::Tag::nondeterministic_seeded) || is_keyed_random(op.operator_name().name)) return false;
  for (const char* training : {"train", "training"}) {
    if (is_false(argument_named(op, given, training))) return false;
  }
  // Without it p is no probability to drop: aten::bernoulli.
  const bool may_drop = argument_named(op, given, "train") != nullptr;
  for (const char* name : {"dropout", "dropout_p", "p"}) {
    const c10::IValue* probability = argument_named(op, given, name);
    const bool drops = name[0] == 'd' || may_drop;
    if (drops && probability != nullptr && probability->isDouble() && probability->toDouble() == 0.0) return false;
  }
  return true;
}

bool takes_batch_statistics(const c10::OperatorHandle& op, Arguments given) {
  const std::string& name = op.operator_name().name;
  return name.find("batch_norm") != std::string::npos && is_true(argument_named(op, given, "training"));
}

bool has_sparse_gradient(const c10::OperatorHandle& op, Arguments given) {
  return op.operator_name().name.starts_with("aten::embedding") && is_true(argument_named(op, given, "sparse"));
}

bool reads_number(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::data_dependent_output) || op.operator_name().name == "aten::is_nonzero";
}

bool makes_shape(const c10::OperatorHandle& op, Arguments given) {
  static const std::set<std::string> untagged = {"aten::nonzero_numpy", "aten::_unique"};
  const std::string& name = op.operator_name().name;
  if (name == "aten::where" && given.size() == 1) return true;
  if (name == "aten::one_hot") return given[1].toInt() < 0;
  if (name == "aten::repeat_interleave") {
    const c10::IValue* size = argument_named(op, given, "output_size");
    const c10::IValue* repeats = argument_named(op, given, "repeats");
    return repeats != nullptr && repeats->isTensor() && (size == nullptr || size->isNone());
  }
  if (name == "aten::index") {
    const auto indices = given[1].toListRef();
    return std::any_of(indices.begin(), indices.end(), [](const c10::IValue& index) {
      return index.isTensor() && index.toTensor().defined() &&
             (index.toTensor().scalar_type() == at::kBool || index.toTensor().scalar_type() == at::kByte);
    });
  }
  return op.hasTag(at::Tag::dynamic_output_shape) || untagged.contains(name);
}

}  // namespace onebatch
