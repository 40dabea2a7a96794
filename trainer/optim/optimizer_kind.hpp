// A kind of optimizer: the tensors that it has for each parameter, and one update of all parameters at once.
#pragma once

#include "trainer/settings/kinds.hpp"

#include <ATen/core/Tensor.h>

namespace onebatch {

enum class StateShape { parameter, scalar };

/// A tensor that each parameter has in the optimizer, zero at first; a checkpoint has it as "NAME.PARAMETER". Those of
/// a parameter's shape are of its gradient's type, scalars of float32.
struct OptimizerState {
  std::string name;
  StateShape shape = StateShape::parameter;
};

/// What is updated: a tensor per parameter in each list.
struct OptimizerTensors {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<std::vector<at::Tensor>> state;  // in the order of OptimizerKind::state
  /// Float32 scalar on their device: where it is 1 the update changes nothing. Undefined: it is done.
  at::Tensor left_out = {};
};

struct UpdateRates {
  double lr;
  double weight_decay;
};

struct OptimizerKind : Kind<OptimizerConfiguration> {
  std::function<std::vector<OptimizerState>(const OptimizerConfiguration&)> state;
  /// In place, without a graph. The lists are not empty.
  std::function<void(const OptimizerTensors&, const OptimizerConfiguration&, const UpdateRates&)> update;
  /// It looks at OptimizerTensors::left_out, which is undefined otherwise.
  bool can_be_left_out = false;

  /// Those of trainer/optim/sources.cmake.
  static std::vector<OptimizerKind> built_in();
};

}  // namespace onebatch
