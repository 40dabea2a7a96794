// What an exported program has written in although the run decides it: see Note [Modes are arguments].
#pragma once

#include "trainer/models/exported_names.hpp"
#include "trainer/models/exported_state.hpp"
#include "trainer/models/script_graph.hpp"

#include <ATen/core/function_schema.h>

namespace onebatch {

/// Looks at each call of an operator as it is compiled: literals that stand for the phase, the device or the type get
/// to follow the run, and calls of batch_norm are noted.
class RunLiterals {
 public:
  RunLiterals(const ExportedState& state, BatchNormUse use, const RunMode& mode)
      : state_(state), use_(use), mode_(mode) {}

  /// Throws UserError where the program was exported in eval mode, or taken apart (run_decompositions).
  void look_at(Call& call, const c10::FunctionSchema& schema, const JsonReader& node, const GraphNames& names);
  /// A factory's floating type where the program leaves it to PyTorch's default.
  void give_type(Call& call, const c10::FunctionSchema& schema, at::ScalarType made) const;

  [[nodiscard]] const std::vector<BatchNormCall>& batch_norms() const { return batch_norms_; }

 private:
  enum class Normalises { samples, weights };
  void look_at_batch_norm(Call& call, const c10::FunctionSchema& schema, const JsonReader& node, Normalises what);
  void look_at_flags(Call& call, const c10::FunctionSchema& schema, const JsonReader& node);
  void look_at_counter(Call& call, const c10::FunctionSchema& schema);
  void look_at_placement(Call& call, const c10::FunctionSchema& schema) const;
  [[nodiscard]] std::string name_of(const Operand& operand) const;

  const ExportedState& state_;
  BatchNormUse use_;
  const RunMode& mode_;
  std::vector<BatchNormCall> batch_norms_;
};

}  // namespace onebatch
