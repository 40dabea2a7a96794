#include "trainer/gradients/clipping.hpp"

#include "trainer/base/transfer.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <cmath>

namespace onebatch {
namespace {

constexpr std::int64_t k_row = 1024;

// LibTorch adds the squares one after the other in the gradient's own type, which loses the small ones of many: of
// rows, and those in float64.
double norm_by_rows(const at::Tensor& flat) {
  const std::int64_t whole = flat.numel() / k_row * k_row;
  const at::Tensor rows = at::linalg_vector_norm(flat.narrow(0, 0, whole).view({-1, k_row}), 2, at::IntArrayRef{1});
  const at::Tensor rest = at::linalg_vector_norm(flat.narrow(0, whole, flat.numel() - whole));
  return read_numbers(at::linalg_vector_norm(at::cat({rows, rest.view({1})}).to(at::kDouble)).view({1})).front();
}

}  // namespace

double gradient_norm(const at::Tensor& flat, comm::Communicator& control) {
  double norm = norm_by_rows(flat);
  // Squares may overflow where no element does.
  if (!std::isfinite(norm) && flat.isfinite().all().item<bool>())
    norm = at::linalg_vector_norm(flat.to(at::kDouble)).item<double>();
  control.broadcast(&norm, sizeof(norm), 0);
  return norm;
}

void clip_gradient(const at::Tensor& flat, double norm, const Clipping& clipping) {
  if (clipping.max_value) flat.clamp_(-*clipping.max_value, *clipping.max_value);
  if (!clipping.max_norm) return;
  const double coefficient = *clipping.max_norm / (norm + 1e-6);
  if (coefficient < 1.0) flat.mul_(coefficient);
}

}  // namespace onebatch
