// Literals that are the largest or least number of the type that a program was exported in.
//
// Attention's masks are made of torch.finfo(x.dtype).min, which a program has as a number. Where the run computes in
// 16 bits, there is no such number, and a call with it would be refused.
#pragma once

#include "trainer/models/exported_calls.hpp"

#include <ATen/core/function_schema.h>

#include <optional>

namespace onebatch {

class LimitLiterals {
 public:
  /// Of a call of an operator, in a program of `program_type`.
  LimitLiterals(const Call& call, const c10::FunctionSchema& schema, at::ScalarType program_type);

  [[nodiscard]] bool empty() const { return operands_.empty(); }
  /// Where the call computes in 16 bits, the limits of its type. The stack holds the call's operands.
  void fit(torch::jit::Stack& stack) const;

 private:
  [[nodiscard]] std::optional<at::ScalarType> type_of(const torch::jit::Stack& stack) const;

  std::vector<std::size_t> operands_;
  std::optional<std::size_t> dtype_;  // the operand that says in what a tensor is made
};

}  // namespace onebatch
