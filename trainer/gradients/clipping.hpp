// Clipping of the whole gradient, by its norm or by value.
#pragma once

#include "comm/communicator.hpp"

#include <ATen/core/Tensor.h>

#include <optional>

namespace onebatch {

struct Clipping {
  std::optional<double> max_norm;
  std::optional<double> max_value;
};

/// The L2 norm of the whole (reduced, divided) gradient; not finite only where an element is not. Rank 0's on every
/// rank (Note [Replicas are one model]). Collective.
double gradient_norm(const at::Tensor& flat, comm::Communicator& control);

/// Scales the gradient of norm `norm` to at most `max_norm` as PyTorch's clip_grad_norm_ does (by max_norm / (norm +
/// 1e-6)), or clips each element to ± max_value as clip_grad_value_ does.
void clip_gradient(const at::Tensor& flat, double norm, const Clipping& clipping);

}  // namespace onebatch
