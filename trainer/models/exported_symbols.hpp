// What an exported program computes of sizes and other numbers: Python's operators, and the sizes themselves.
#pragma once

#include <ATen/core/stack.h>

#include <functional>
#include <optional>
#include <string>

namespace onebatch {

struct SymbolOperator {
  std::size_t arguments = 0;
  std::function<void(torch::jit::Stack&)> make;
};

/// "_operator.mul", "math.trunc", "torch.sym_max", "torch.ops.aten.sym_size.int"; none: it is none of them. What is
/// computed throws UserError where it overflows or divides by zero.
std::optional<SymbolOperator> symbol_operator(const std::string& target);

}  // namespace onebatch
