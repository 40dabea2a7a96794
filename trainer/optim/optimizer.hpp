// The optimizers: one fused LibTorch call per step over all parameters that were touched.
#pragma once

#include "trainer/gradients/flat_gradients.hpp"

namespace onebatch {

class Optimizer {
 public:
  /// Throws UserError for a group that matches no parameter. Allocates its state at once, so that a probe counts it. Parameters of another
  /// type than their gradient have masters of the gradient's type: those are updated, and copied to the parameters.
  Optimizer(const OptimizerConfiguration& configuration, const FlatGradients& gradients);

  /// Updates the parameters from the views of the flat gradient, at the rate `lr`; a group with a rate of its own at that times what `lr`
  /// is of the configuration's. A parameter whose `touched` is 0 keeps its value and state: a zero gradient would still be decayed.
  /// `touched` has one entry per parameter.
  void step(double lr, const std::vector<double>& touched);

  /// Live tensors: "exp_avg.NAME", "exp_avg_sq.NAME", "step.NAME" or "momentum_buffer.NAME", and "master.NAME".
  [[nodiscard]] std::vector<NamedTensor> state() const;

 private:
  struct Tensors {
    std::vector<at::Tensor> parameters, gradients, first, second, steps;
  };
  [[nodiscard]] Tensors select(std::size_t group, const std::vector<double>& touched) const;
  void update(const Tensors& tensors, double lr, double weight_decay) const;

  OptimizerConfiguration configuration_;
  void copy_masters(const std::vector<double>& touched);

  std::vector<std::string> names_;
  std::vector<std::size_t> group_of_;  // each parameter's; the last is of those that no group matches
  std::vector<at::Tensor> copies_;     // the model's own, of those that have masters; else undefined
  Tensors all_;
};

}  // namespace onebatch
