// The sum of samples' weights over micro-batches and ranks, the same in any order: see Note [Bitwise].
#pragma once

#include <ATen/core/Tensor.h>

namespace onebatch {

struct WeightSum {
  double coarse = 0.0;  // multiples of 2^-20
  double fine = 0.0;    // of what they leave, multiples of 2^-60

  void add(double weight);
  [[nodiscard]] double value() const { return coarse + fine; }
};

/// The same of a scalar, on the sum's device or on the host: adds to the two, float64 [2].
void add_weight(const at::Tensor& sum, const at::Tensor& weight);

}  // namespace onebatch
