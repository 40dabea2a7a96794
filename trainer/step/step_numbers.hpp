// What micro-batches of a step add up on the device, and what they multiply by.
#pragma once

#include "trainer/replica/replica.hpp"

#include <ATen/core/Tensor.h>

namespace onebatch {

/// Scalars on the replica's device.
struct StepNumbers {
  at::Tensor loss_sum;    // float64
  at::Tensor weight_sum;  // float64 [2], where the model tells it: see WeightSum
  at::Tensor factor;      // of the loss, see Note [Loss scale]

  /// Sums of zero.
  static StepNumbers of(const Replica& replica);
  /// A micro-batch's; its weight may be undefined.
  void add(const at::Tensor& loss, const at::Tensor& weight, Replica& replica) const;
  /// As UnreadSums have them.
  [[nodiscard]] at::Tensor unread(const Replica& replica) const;
};

}  // namespace onebatch
