// The sum of samples' weights over micro-batches and ranks; in bitwise mode the same in any order: see Note [Bitwise].
#pragma once

#include <ATen/core/Tensor.h>

namespace onebatch {

/// yes: what is finer than 2^-60 is rounded away, so that any order of summation has the same bits.
enum class AnyOrder : bool { no, yes };

struct WeightSum {
  double coarse = 0.0;  // multiples of 2^-20
  double fine = 0.0;    // of what they leave

  void add(double weight, AnyOrder any);
  [[nodiscard]] double value() const { return coarse + fine; }
};

/// The same of a scalar, on the sum's device or on the host: adds to the two, float64 [2].
void add_weight(const at::Tensor& sum, const at::Tensor& weight, AnyOrder any);

}  // namespace onebatch
