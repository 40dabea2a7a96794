#include "trainer/models/exported_limits.hpp"

#include <c10/core/ScalarType.h>

#include <cmath>
#include <limits>

namespace onebatch {
namespace {

// Infinity where the type has no such number.
double largest_of(at::ScalarType type) {
  switch (type) {
    case at::kHalf: return std::numeric_limits<c10::Half>::max();
    case at::kBFloat16: return std::numeric_limits<c10::BFloat16>::max();
    case at::kFloat: return std::numeric_limits<float>::max();
    case at::kDouble: return std::numeric_limits<double>::max();
    default: return std::numeric_limits<double>::infinity();
  }
}

}  // namespace

LimitLiterals::LimitLiterals(const Call& call, const c10::FunctionSchema& schema, at::ScalarType program_type) {
  const double largest = largest_of(program_type);
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    const Operand& operand = call.operands[i];
    const bool is_literal = operand.form == Operand::Form::constant && operand.constant.isDouble();
    if (is_literal && std::abs(operand.constant.toDouble()) == largest) operands_.push_back(i);
  }
  if (const auto index = schema.argumentIndexWithName("dtype")) dtype_ = static_cast<std::size_t>(*index);
}

void LimitLiterals::fit(torch::jit::Stack& stack) const {
  const auto type = type_of(stack);
  if (!type || !c10::isReducedFloatingType(*type)) return;
  for (const std::size_t operand : operands_)
    stack[operand] = std::copysign(largest_of(*type), stack[operand].toDouble());
}

std::optional<at::ScalarType> LimitLiterals::type_of(const torch::jit::Stack& stack) const {
  if (dtype_ && stack[*dtype_].isInt()) return static_cast<at::ScalarType>(stack[*dtype_].toInt());
  for (const c10::IValue& value : stack) {
    if (value.isTensor() && value.toTensor().defined() && at::isFloatingType(value.toTensor().scalar_type()))
      return value.toTensor().scalar_type();
  }
  return std::nullopt;
}

}  // namespace onebatch
