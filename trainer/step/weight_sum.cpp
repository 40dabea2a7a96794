#include "trainer/step/weight_sum.hpp"

namespace onebatch {
namespace {

// Adding 1.5 * 2^(52 - n) and taking it away rounds to a multiple of 2^-n.
constexpr double k_to_coarse = 0x1.8p32;
constexpr double k_to_fine = 0x1.8p-8;

}  // namespace

void WeightSum::add(double weight, AnyOrder any) {
  const double part = (weight + k_to_coarse) - k_to_coarse;
  const double rest = weight - part;
  coarse += part;
  fine += any == AnyOrder::yes ? (rest + k_to_fine) - k_to_fine : rest;
}

void add_weight(const at::Tensor& sum, const at::Tensor& weight, AnyOrder any) {
  const at::Tensor whole = weight.detach().to(at::kDouble).reshape({});
  const at::Tensor part = whole.add(k_to_coarse).sub_(k_to_coarse);
  sum.select(0, 0).add_(part);
  const at::Tensor rest = whole.sub(part);
  if (any == AnyOrder::yes) rest.add_(k_to_fine).sub_(k_to_fine);
  sum.select(0, 1).add_(rest);
}

}  // namespace onebatch
