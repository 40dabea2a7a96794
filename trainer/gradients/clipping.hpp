// Clipping of the whole gradient, by its norm or by value.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace onebatch {

struct Clipping {
  std::optional<double> max_norm;
  std::optional<double> max_value;
};

/// The L2 norm of a whole gradient, on its device: float64 [1]. Not finite also where squares of its elements are not:
/// see checked_norm().
at::Tensor gradient_norm(const at::Tensor& flat);
/// What was read of it; where that is not finite though every element is, another that does not overflow.
double checked_norm(double read, const at::Tensor& flat);

/// Scales the gradient of norm `norm` to at most `max_norm` as PyTorch's clip_grad_norm_ does (by max_norm / (norm +
/// 1e-6)), or clips each element to ± max_value as clip_grad_value_ does.
void clip_gradient(const at::Tensor& flat, double norm, const Clipping& clipping);

}  // namespace onebatch
