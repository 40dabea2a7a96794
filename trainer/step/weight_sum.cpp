#include "trainer/step/weight_sum.hpp"

namespace onebatch {
namespace {

// Adding 1.5 * 2^(52 - n) and taking it away rounds to a multiple of 2^-n.
constexpr double k_to_coarse = 0x1.8p32;
constexpr double k_to_fine = 0x1.8p-8;

}  // namespace

void WeightSum::add(double weight) {
  const double part = (weight + k_to_coarse) - k_to_coarse;
  coarse += part;
  fine += ((weight - part) + k_to_fine) - k_to_fine;
}

void add_weight(const at::Tensor& sum, const at::Tensor& weight) {
  const at::Tensor whole = weight.detach().to(at::kDouble).reshape({});
  const at::Tensor part = whole.add(k_to_coarse).sub_(k_to_coarse);
  sum.select(0, 0).add_(part);
  sum.select(0, 1).add_(whole.sub(part).add_(k_to_fine).sub_(k_to_fine));
}

}  // namespace onebatch
