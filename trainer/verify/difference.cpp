#include "trainer/verify/difference.hpp"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace onebatch {
namespace {

double norm(const at::Tensor& tensor) {
  return at::linalg_vector_norm(tensor).item<double>();
}

// std::max forgets a NaN.
double larger(double a, double b) {
  return b <= a || std::isnan(a) ? a : b;
}

struct Sizes {
  double error = 0.0;
  double max_abs = 0.0;
  double reference = 0.0;
};

Sizes sizes_of(const at::Tensor& ours, const at::Tensor& reference) {
  const at::Tensor a = ours.flatten();
  const at::Tensor b = reference.flatten();
  if (a.numel() != b.numel()) throw std::logic_error("tensors of other sizes");
  Sizes sizes;
  for_each_part(a.numel(), [&](std::int64_t begin, std::int64_t length) {
    const at::Tensor part = b.narrow(0, begin, length);
    const at::Tensor delta = a.narrow(0, begin, length).sub(part);
    const double max_abs = delta.abs().max().item<double>();
    sizes.max_abs = larger(sizes.max_abs, max_abs);
    sizes.error = std::hypot(sizes.error, larger(norm(delta), max_abs));  // the square of a tiny difference is 0
    sizes.reference = std::hypot(sizes.reference, norm(part));
  });
  return sizes;
}

}  // namespace

double ratio(double error, double norm) {
  if (!std::isfinite(error) || !std::isfinite(norm)) return std::nan("");
  return norm > 0.0 ? error / norm : (error > 0.0 ? HUGE_VAL : 0.0);
}

double apart(double ours, double expected) {
  return ours == expected ? 0.0 : ratio(std::abs(ours - expected), std::abs(expected));
}

Difference difference_of(const at::Tensor& ours, const at::Tensor& reference) {
  const Sizes sizes = sizes_of(ours, reference);
  return {ratio(sizes.error, sizes.reference), sizes.max_abs};
}

Difference difference_of(const Gradient& ours, const Gradient& reference) {
  if (ours.size() != reference.size()) throw std::logic_error("gradients of other parameters");
  double error = 0.0;
  double size = 0.0;
  Difference total;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].name != reference[i].name) throw std::logic_error("gradients of other parameters: " + ours[i].name);
    const Sizes sizes = sizes_of(ours[i].tensor, reference[i].tensor);
    error = std::hypot(error, sizes.error);
    size = std::hypot(size, sizes.reference);
    total.max_abs = larger(total.max_abs, sizes.max_abs);
  }
  total.relative_l2 = ratio(error, size);
  return total;
}

double norm_of(const Gradient& gradient) {
  double total = 0.0;
  for (const NamedTensor& one : gradient) total = std::hypot(total, norm(one.tensor));
  return total;
}

at::Tensor numbers_in(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().is_sparse() ? tensor.detach().to_dense() : tensor.detach();
  return dense.is_complex() ? at::view_as_real(dense.resolve_conj()) : dense;
}

at::Tensor as_numbers(const at::Tensor& tensor) {
  return numbers_in(tensor).cpu().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
}

void for_each_part(std::int64_t elements, const std::function<void(std::int64_t begin, std::int64_t length)>& work) {
  constexpr std::int64_t k_part = std::int64_t{1} << 20;
  for (std::int64_t begin = 0; begin < elements; begin += k_part) work(begin, std::min(k_part, elements - begin));
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
