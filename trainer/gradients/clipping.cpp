#include "trainer/gradients/clipping.hpp"

#include <ATen/ops/linalg_vector_norm.h>

namespace onebatch {

double clip_gradient(const at::Tensor& flat, const Clipping& clipping, comm::Communicator& control) {
  double norm = at::linalg_vector_norm(flat).item<double>();
  if (clipping.max_value) flat.clamp_(-*clipping.max_value, *clipping.max_value);
  if (!clipping.max_norm) return norm;
  control.broadcast(&norm, sizeof(norm), 0);
  const double coefficient = *clipping.max_norm / (norm + 1e-6);
  if (coefficient < 1.0) flat.mul_(coefficient);
  return norm;
}

}  // namespace onebatch
