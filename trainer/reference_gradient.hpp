// A gradient computed without the trainer's step, on purpose: what that is compared with.
#pragma once

#include "trainer/replica.hpp"

namespace onebatch {

/// Of the whole gradient, in fp64 on the CPU, by parameter.
using Gradient = std::vector<NamedTensor>;

struct Difference {
  double relative_l2 = 0.0;
  double max_abs = 0.0;
};

Difference difference_of(const at::Tensor& ours, const at::Tensor& reference);
/// Over all parameters together.
Difference difference_of(const Gradient& ours, const Gradient& reference);

class ReferenceGradient {
 public:
  /// Keeps the replica's weights as they are now.
  ReferenceGradient(const Configuration& configuration, const Dataset& data, const Replica& replica);

  /// Each group's samples at once, from the kept weights, summed and divided once: one group is one single batch. On the CPU, in fp64.
  [[nodiscard]] Gradient exact(const std::vector<std::vector<std::int64_t>>& groups) const;
  /// One single batch in the run's own precision.
  [[nodiscard]] Gradient in_own_precision(const std::vector<std::int64_t>& samples) const;

 private:
  struct Arithmetic {
    std::optional<at::ScalarType> type;  // of all the model's numbers; none: the run's
    at::ScalarType loss_type;
    std::optional<at::ScalarType> autocast;
    double scale = 1.0;
  };
  Gradient gradient(const std::vector<std::vector<std::int64_t>>& groups, const Arithmetic& in) const;
  double add(Model& model, const std::vector<std::int64_t>& samples, const Arithmetic& in, double factor) const;

  const Configuration& configuration_;
  const Dataset& data_;
  const Replica& replica_;
  std::vector<std::vector<std::byte>> weights_;
};

}  // namespace onebatch
