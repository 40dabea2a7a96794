#include "trainer/reference_gradient.hpp"

#include "trainer/data/augment.hpp"
#include "trainer/device/autocast.hpp"
#include "trainer/replica_state.hpp"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

double ratio(double error, double norm) {
  if (!std::isfinite(error) || !std::isfinite(norm)) return std::nan("");
  return norm > 0.0 ? error / norm : (error > 0.0 ? HUGE_VAL : 0.0);
}

}  // namespace

Difference difference_of(const at::Tensor& ours, const at::Tensor& reference) {
  const at::Tensor delta = ours.sub(reference);
  return {ratio(at::linalg_vector_norm(delta).item<double>(), at::linalg_vector_norm(reference).item<double>()),
          delta.numel() > 0 ? delta.abs().max().item<double>() : 0.0};
}

Difference difference_of(const Gradient& ours, const Gradient& reference) {
  double error = 0.0;
  double norm = 0.0;
  Difference total;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double delta = at::linalg_vector_norm(ours[i].tensor.sub(reference[i].tensor)).item<double>();
    const double size = at::linalg_vector_norm(reference[i].tensor).item<double>();
    error += delta * delta;
    norm += size * size;
    total.max_abs = std::max(total.max_abs, difference_of(ours[i].tensor, reference[i].tensor).max_abs);
  }
  total.relative_l2 = ratio(std::sqrt(error), std::sqrt(norm));
  return total;
}

ReferenceGradient::ReferenceGradient(const Configuration& configuration, const Dataset& data, const Replica& replica)
    : configuration_(configuration), data_(data), replica_(replica) {
  for (const auto& [name, tensor] : state_of(*replica.model)) weights_.push_back(host_bytes(tensor));
}

Gradient ReferenceGradient::exact(const std::vector<std::vector<std::int64_t>>& groups) const {
  return gradient(groups, {at::kDouble, at::kDouble, std::nullopt, 1.0});
}

Gradient ReferenceGradient::in_own_precision(const std::vector<std::int64_t>& samples) const {
  return gradient({samples}, {std::nullopt, replica_.loss_type, replica_.autocast, replica_.loss_scale.scale()});
}

Gradient ReferenceGradient::gradient(const std::vector<std::vector<std::int64_t>>& groups, const Arithmetic& in) const {
  const c10::Device host(c10::kCPU);
  const auto model = make_model_for(configuration_, data_, host, replica_.type);
  const auto tensors = state_of(*model);
  for (std::size_t i = 0; i < tensors.size(); ++i) copy_from_bytes(tensors[i].tensor, weights_.at(i));
  if (in.type) model->move_to(host, *in.type, *in.type);
  std::size_t count = 0;
  for (const auto& samples : groups) count += samples.size();
  // A mean of the samples' losses, as one writes it by hand; the true weight corrects it at the end.
  const double factor = in.scale / static_cast<double>(count);
  double weight = 0.0;
  for (const auto& samples : groups) weight += add(*model, samples, in, factor);
  Gradient gradient;
  for (const auto& [name, tensor] : model->parameters()) {
    if (!tensor.requires_grad()) continue;
    const at::Tensor grad = tensor.grad().defined() ? tensor.grad() : at::zeros_like(tensor);
    gradient.push_back({name, grad.to(at::kDouble).div_(factor * weight)});
  }
  return gradient;
}

double ReferenceGradient::add(Model& model, const std::vector<std::int64_t>& samples, const Arithmetic& in, double factor) const {
  const Loss& loss = replica_.loss;
  Batch batch = data_.gather(samples, in.loss_type);
  batch.inputs.front() = augmented(batch.inputs.front(), replica_.augment, replica_.seed, 0, samples);
  std::vector<at::Tensor> inputs = loss.is_the_models() ? batch.tensors() : batch.inputs;
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    if (inputs[i].is_floating_point()) inputs[i] = inputs[i].to(in.type.value_or(replica_.type));
  }
  std::vector<at::Tensor> returned;
  {
    const AutocastScope scope(in.autocast, c10::Device(c10::kCPU));
    returned = model.run(inputs, {replica_.seed, 0, samples});
  }
  if (loss.is_the_models()) {
    returned[0].to(in.loss_type).mul(factor).backward();
    return returned[1].item<double>();
  }
  loss.sum(returned[0].to(in.loss_type), batch.targets, batch.weights).mul(factor).backward();
  return loss.weight(batch.targets, batch.weights);
}

}  // namespace onebatch
