#include "trainer/verify/difference.hpp"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/view_as_real.h>

#include <cmath>
#include <stdexcept>

namespace onebatch {
namespace {

double norm(const at::Tensor& tensor) {
  return at::linalg_vector_norm(tensor).item<double>();
}

// std::max forgets a NaN.
double larger(double a, double b) {
  return b <= a ? a : b;
}

}  // namespace

double ratio(double error, double norm) {
  if (!std::isfinite(error) || !std::isfinite(norm)) return std::nan("");
  return norm > 0.0 ? error / norm : (error > 0.0 ? HUGE_VAL : 0.0);
}

Difference difference_of(const at::Tensor& ours, const at::Tensor& reference) {
  const at::Tensor delta = ours.sub(reference);
  const double max_abs = delta.numel() > 0 ? delta.abs().max().item<double>() : 0.0;
  return {ratio(larger(norm(delta), max_abs), norm(reference)), max_abs};  // the square of a tiny difference is 0
}

Difference difference_of(const Gradient& ours, const Gradient& reference) {
  if (ours.size() != reference.size()) throw std::logic_error("gradients of other parameters");
  double error = 0.0;
  double size = 0.0;
  Difference total;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].name != reference[i].name) throw std::logic_error("gradients of other parameters: " + ours[i].name);
    const double max_abs = difference_of(ours[i].tensor, reference[i].tensor).max_abs;
    error = std::hypot(error, larger(norm(ours[i].tensor.sub(reference[i].tensor)), max_abs));
    size = std::hypot(size, norm(reference[i].tensor));
    total.max_abs = larger(total.max_abs, max_abs);
  }
  total.relative_l2 = ratio(error, size);
  return total;
}

double norm_of(const Gradient& gradient) {
  double total = 0.0;
  for (const NamedTensor& one : gradient) total = std::hypot(total, norm(one.tensor));
  return total;
}

at::Tensor as_numbers(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().is_sparse() ? tensor.detach().to_dense() : tensor.detach();
  return (dense.is_complex() ? at::view_as_real(dense.resolve_conj()) : dense)
      .cpu()
      .to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
}

double unit_roundoff(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
    case at::kComplexDouble: return std::ldexp(1.0, -53);
    case at::kHalf: return std::ldexp(1.0, -11);
    case at::kBFloat16: return std::ldexp(1.0, -8);
    default: return std::ldexp(1.0, -24);
  }
}

}  // namespace onebatch
