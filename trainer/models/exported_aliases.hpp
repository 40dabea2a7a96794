// Which values of a program share memory, and which of that memory some call writes to. Errs on the side of sharing.
#pragma once

#include "trainer/models/exported_calls.hpp"

#include <ATen/core/function_schema.h>

#include <map>

namespace onebatch {

class SharedMemory {
 public:
  /// A value: a slot of a block, or a tensor that is always there.
  using Value = std::size_t;
  Value of(const Operand& operand, std::size_t block);
  Value of(Slot slot, std::size_t block);

  /// What an operator's schema says: results that are views of arguments, arguments that are written to.
  void note(const Call& call, const c10::FunctionSchema& schema, std::size_t block);
  void share(Value one, Value other);
  [[nodiscard]] bool is_written(Value value) const;

 private:
  [[nodiscard]] Value root(Value value) const;
  Value fresh();

  std::map<std::pair<std::size_t, Slot>, Value> of_slots_;
  std::map<const void*, Value> of_tensors_;
  std::vector<Value> parents_;
  std::vector<bool> written_;
};

}  // namespace onebatch
