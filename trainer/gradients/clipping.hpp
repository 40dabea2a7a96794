// Clipping by the norm of the whole gradient.
#pragma once

#include "comm/communicator.hpp"

#include <ATen/core/Tensor.h>

#include <optional>

namespace onebatch {

/// Returns the L2 norm of the whole (reduced, divided) gradient, and scales it to at most `max_norm` as PyTorch's clip_grad_norm_ does (by
/// max_norm / (norm + 1e-6)). The norm is rank 0's on every rank (Note [Replicas are one model]). Collective.
double clip_gradient(const at::Tensor& flat, std::optional<double> max_norm, comm::Communicator& control);

}  // namespace onebatch
