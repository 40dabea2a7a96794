// What one step of the optimizer makes of weights, in float64 and from the papers' formulas: not by the program's
// optimizer.
#pragma once

#include "trainer/verify/judgement.hpp"
#include "trainer/verify/reference.hpp"

#include <optional>

namespace onebatch {

/// Adam (Kingma and Ba, 2015, algorithm 1, with L2 decay in the gradient), AdamW (Loshchilov and Hutter, 2019,
/// algorithm 2), SGD with (Nesterov) momentum as PyTorch writes it; clipping of the whole gradient before; groups of
/// parameters with options of their own.
class ExpectedUpdate {
 public:
  /// Copies weights and the optimizer's state as they are before the step.
  ExpectedUpdate(const Configuration& configuration, const Replica& replica);

  /// Whether the optimizer is one of those: of a kind from elsewhere nothing is expected.
  [[nodiscard]] bool knows_the_optimizer() const;

  struct Result {
    double relative_l2 = 0.0;  // of what was added to the weights
    double tolerance = 0.0;    // what the type of the weights rounds
    std::string worst;         // the parameter that is off most

    [[nodiscard]] Judgement judgement() const {
      return {tolerance, is_within(relative_l2, tolerance) ? Verdict::pass : Verdict::fail};
    }
  };
  /// The weights now against those expected. `gradient` as it was before clipping; parameters in `not_reached` keep
  /// their values.
  [[nodiscard]] Result compare(const Gradient& gradient, const std::vector<std::string>& not_reached, double lr) const;
  /// The average of the weights (optimizer.ema_decay) now against a <- d a + (1 - d) w of the weights now (Polyak and
  /// Juditsky, 1992), of what was added to it. None where nothing is averaged.
  [[nodiscard]] std::optional<Result> compare_average() const;

 private:
  // One-dimensional and on the host, of their own types: in float64 there would be two of a float32 model's.
  struct Tensors {
    at::Tensor weight, first, second, average;
    double count = 0.0;
  };
  // Of as many elements, in float64.
  static Tensors part_of(const Tensors& whole, std::int64_t begin, std::int64_t length);
  [[nodiscard]] at::Tensor expected(const std::string& name, const Tensors& before, at::Tensor gradient,
                                    double lr) const;
  [[nodiscard]] const ParameterGroup* group_of(const std::string& name) const;

  const Configuration& configuration_;
  const Replica& replica_;
  std::vector<Tensors> before_;
};

}  // namespace onebatch
