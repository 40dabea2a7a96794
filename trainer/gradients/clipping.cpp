#include "trainer/gradients/clipping.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <cmath>

namespace onebatch {
namespace {

constexpr std::int64_t k_row = 1024;

}  // namespace

// LibTorch adds the squares one after the other in the gradient's own type, which loses the small ones of many: of
// rows, and those in float64.
at::Tensor gradient_norm(const at::Tensor& flat) {
  const std::int64_t whole = flat.numel() / k_row * k_row;
  const at::Tensor rows = at::linalg_vector_norm(flat.narrow(0, 0, whole).view({-1, k_row}), 2, at::IntArrayRef{1});
  const at::Tensor rest = at::linalg_vector_norm(flat.narrow(0, whole, flat.numel() - whole));
  return at::linalg_vector_norm(at::cat({rows, rest.view({1})}).to(at::kDouble)).view({1});
}

double checked_norm(double read, const at::Tensor& flat) {
  if (std::isfinite(read) || !flat.isfinite().all().item<bool>()) return read;
  return at::linalg_vector_norm(flat.to(at::kDouble)).item<double>();
}

void clip_gradient(const at::Tensor& flat, double norm, const Clipping& clipping) {
  if (clipping.max_value) flat.clamp_(-*clipping.max_value, *clipping.max_value);
  if (!clipping.max_norm) return;
  const double coefficient = *clipping.max_norm / (norm + 1e-6);
  if (coefficient < 1.0) flat.mul_(coefficient);
}

}  // namespace onebatch
