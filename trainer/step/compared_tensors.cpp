#include "trainer/step/compared_tensors.hpp"

#include "trainer/base/transfer.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>

#include <cmath>

namespace onebatch {
namespace {

at::ScalarType bits_of(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1: return at::kByte;
    case 2: return at::kShort;
    case 4: return at::kInt;
    default: return at::kLong;
  }
}

// A sum of float64 over the tensors, read at once.
template <typename Term>
double sum_over(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, Term term) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums;
  for (std::size_t i = 0; i < a.size(); ++i) sums.push_back(term(a[i], b[i]).sum(at::kDouble));
  double sum = 0.0;
  for (const double one : read_numbers(at::stack(sums))) sum += one;
  return sum;
}

}  // namespace

void copy(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i], /*non_blocking=*/true);
}

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

bool has_same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return sum_over(a, b, [](const at::Tensor& x, const at::Tensor& y) {
           return x.view(bits_of(x)).ne(y.view(bits_of(y)));
         }) == 0.0;
}

double distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::sqrt(sum_over(a, b, [](const at::Tensor& x, const at::Tensor& y) {
    return x.to(at::kDouble).sub(y.to(at::kDouble)).square();
  }));
}

bool tells_nothing(const at::Tensor& gradient, const at::Tensor& before) {
  const at::NoGradGuard no_grad;
  const std::vector<double> counts = read_numbers(
      at::stack({at::isfinite(gradient).logical_not().sum(at::kDouble), gradient.eq(before).sum(at::kDouble)}));
  return counts[0] > 0.0 || counts[1] == static_cast<double>(gradient.numel());
}

}  // namespace onebatch
