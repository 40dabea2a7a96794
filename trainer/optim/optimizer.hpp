// The optimizers: one fused LibTorch call per step over all parameters that were touched.
#pragma once

#include "trainer/gradients/flat_gradients.hpp"
#include "trainer/optim/optimizer_kind.hpp"

namespace onebatch {

class Optimizer {
 public:
  /// Throws UserError for a group that matches no parameter. Allocates its state at once, so that a probe counts it.
  /// Parameters of another type than their gradient have masters of the gradient's type: those are updated, and copied
  /// to the parameters.
  Optimizer(const OptimizerConfiguration& configuration, const FlatGradients& gradients);

  /// Updates the parameters from the views of the flat gradient, at the rate `lr`; a group with a rate of its own at
  /// that times what `lr` is of the configuration's. A parameter whose `touched` is 0 keeps its value and state: a zero
  /// gradient would still be decayed. `touched` has one entry per parameter.
  void step(double lr, const std::vector<double>& touched);

  /// Live tensors: "STATE.NAME" for each of the kind's states, and "master.NAME".
  [[nodiscard]] std::vector<NamedTensor> state() const;

 private:
  [[nodiscard]] OptimizerTensors select(std::size_t group, const std::vector<double>& touched) const;
  void update(const OptimizerTensors& tensors, const UpdateRates& rates) const;
  void copy_masters(const std::vector<double>& touched);

  OptimizerConfiguration configuration_;
  const OptimizerKind& kind_;
  std::vector<OptimizerState> state_;
  std::vector<std::string> names_;
  std::vector<std::size_t> group_of_;  // each parameter's; the last is of those that no group matches
  std::vector<at::Tensor> copies_;     // the model's own, of those that have masters; else undefined
  OptimizerTensors all_;
};

/// How many numbers it has for each of a parameter's.
std::int64_t states_per_parameter(const OptimizerConfiguration& configuration);

}  // namespace onebatch
