#include "trainer/gradients/clipping.hpp"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <cmath>

namespace onebatch {

double gradient_norm(const at::Tensor& flat, comm::Communicator& control) {
  double norm = at::linalg_vector_norm(flat).item<double>();
  // Squares may overflow where no element does.
  if (!std::isfinite(norm) && flat.isfinite().all().item<bool>()) norm = at::linalg_vector_norm(flat.to(at::kDouble)).item<double>();
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
