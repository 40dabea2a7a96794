#include "trainer/step/step_numbers.hpp"

#include "trainer/replica/train_micro_batch.hpp"
#include "trainer/step/weight_sum.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

namespace onebatch {

StepNumbers StepNumbers::of(const Replica& replica) {
  const auto on_device = at::TensorOptions().device(replica.device.device());
  const at::Tensor zero = at::zeros({}, on_device.dtype(at::kDouble));
  return {zero, at::zeros({2}, zero.options()), all_times(replica.loss_scale.factor(), replica).factor};
}

void StepNumbers::add(const at::Tensor& loss, const at::Tensor& weight, Replica& replica) const {
  loss_sum.add_(loss);
  if (weight.defined()) add_weight(weight_sum, weight, AnyOrder(replica.gradients.reproducible() != nullptr));
}

at::Tensor StepNumbers::unread(const Replica& replica) const {
  const at::Tensor loss = loss_sum.reshape({1});
  return replica.loss.is_the_models() ? at::cat({loss, weight_sum}) : loss;
}

}  // namespace onebatch
