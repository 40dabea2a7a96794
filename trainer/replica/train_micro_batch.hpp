// Forward and backward of a micro-batch: by native code, where the model has some.
#pragma once

#include "trainer/replica/replica.hpp"

#include <optional>
#include <vector>

namespace onebatch {

/// A micro-batch's gradient, times `factor` (a scalar of the loss's type, where the model is).
struct MicroGradient {
  at::Tensor factor;
  std::optional<std::vector<std::size_t>> of = std::nullopt;  // the parameters to add it to; none: all
};

MicroGradient all_times(double factor, const Replica& replica);

/// Adds the gradient of the loss's sum to the replica's. Returns the loss and, where the model tells it, its weight.
Replica::Forward train_uncompiled(Replica& replica, const Batch& batch, const ForwardContext& context,
                                  const MicroGradient& gradient);

/// Likewise. Native code adds as it goes: where it throws, the gradient is that of no batch.
Replica::Forward train_micro_batch(Replica& replica, const Batch& batch, const ForwardContext& context,
                                   const MicroGradient& gradient);

}  // namespace onebatch
