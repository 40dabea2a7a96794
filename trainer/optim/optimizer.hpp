// The optimizers: one fused LibTorch call per step over all parameters that were touched.
#pragma once

#include "trainer/gradients/flat_gradients.hpp"
#include "trainer/optim/optimizer_kind.hpp"
#include "trainer/optim/weight_average.hpp"

#include <optional>

namespace onebatch {

/// What the names of the average's tensors begin with in Optimizer::state().
inline constexpr const char* k_average_prefix = "ema.";

class Optimizer {
 public:
  /// Throws UserError for a group that matches no parameter. Allocates its state at once, so that a probe counts it.
  /// Parameters of another type than their gradient have masters of the gradient's type: those are updated, and copied
  /// to the parameters.
  Optimizer(const OptimizerConfiguration& configuration, const FlatGradients& gradients);

  /// Updates the parameters from the views of the flat gradient, at the rate `lr`; a group with a rate of its own at
  /// that times what `lr` is of the configuration's. A parameter whose `touched` is 0 keeps its value and state: a zero
  /// gradient would still be decayed. `touched` has one entry per parameter. The average of the weights, where there is
  /// one, follows. `left_out`: see OptimizerTensors; only where can_be_left_out().
  void step(double lr, const std::vector<double>& touched, const at::Tensor& left_out = {});
  [[nodiscard]] bool can_be_left_out() const { return kind_.can_be_left_out && !average_; }

  /// Live tensors: "STATE.NAME" for each of the kind's states, "master.NAME" and "ema.NAME".
  [[nodiscard]] std::vector<NamedTensor> state() const;

  /// None where optimizer.ema_decay is 0.
  [[nodiscard]] WeightAverage* average() { return average_ ? &*average_ : nullptr; }

 private:
  [[nodiscard]] OptimizerTensors select(std::size_t group, const std::vector<double>& touched) const;
  void update(const OptimizerTensors& tensors, const UpdateRates& rates) const;
  void copy_masters(const std::vector<double>& touched);
  void begin_average();

  OptimizerConfiguration configuration_;
  const OptimizerKind& kind_;
  std::vector<OptimizerState> state_;
  std::vector<std::string> names_;
  std::vector<std::size_t> group_of_;  // each parameter's; the last is of those that no group matches
  std::vector<at::Tensor> copies_;     // the model's own, of those that have masters; else undefined
  OptimizerTensors all_;
  std::optional<WeightAverage> average_;
};

/// While it lives the model has the averaged weights, where there are any.
class AveragedWeights {
 public:
  explicit AveragedWeights(Optimizer& optimizer) : average_(optimizer.average()) {
    if (average_ != nullptr) average_->show();
  }
  ~AveragedWeights() {
    if (average_ != nullptr) average_->hide();
  }
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  WeightAverage* average_;
};

/// How many numbers it has for each of a parameter's, one of an average among them.
std::int64_t states_per_parameter(const OptimizerConfiguration& configuration);

}  // namespace onebatch
