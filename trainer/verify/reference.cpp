#include "trainer/verify/reference.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/padding.hpp"
#include "trainer/device/autocast.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/models/layout.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

namespace onebatch {
namespace {

// Another arithmetic shares nothing with the run's kernels, nor the order that they read memory in.
Configuration with(Configuration configuration, const Arithmetic& in) {
  if (in.batch_norms == BatchNorms::frozen) configuration.batch_norm.frozen = true;
  if (in.type) configuration.precision.channels_last = Switch::off;
  return configuration;
}

}  // namespace

Weights weights_of(const Model& model) {
  Weights weights;
  for (const auto& [name, tensor] : state_of(model)) weights.push_back(host_bytes(tensor));
  return weights;
}

void set_weights(const std::vector<NamedTensor>& target, const std::vector<NamedTensor>& source,
                 const Weights& weights) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < target.size(); ++i) {
    const at::Tensor bytes =
        at::zeros_like(source[i].tensor, source[i].tensor.options().device(at::kCPU).requires_grad(false));
    copy_from_bytes(bytes, weights.at(i));
    target[i].tensor.copy_(bytes);
  }
}

ReferenceModel::ReferenceModel(const ReferenceParts& parts, const Arithmetic& in, const Weights& weights)
    : parts_(parts),
      in_(in),
      type_(in.type.value_or(parts.replica.type)),
      loss_type_(in.type.value_or(parts.replica.loss_type)),
      scale_(in.type ? 1.0 : parts.replica.loss_scale.scale()) {
  // The run's bytes fit the run's types; what is computed in comes after.
  const c10::Device first = in.type ? c10::Device(c10::kCPU) : in.device;
  model_ = make_model_for(with(parts.configuration, in), parts.data, first, parts.replica.type);
  const auto tensors = state_of(*model_);
  for (std::size_t i = 0; i < tensors.size(); ++i) copy_from_bytes(tensors[i].tensor, weights.at(i));
  if (in.type) model_->move_to(in.device, *in.type, *in.type);
}

void ReferenceModel::take_parameters(const Weights& weights) {
  set_weights(model_->parameters(), parts_.replica.model->parameters(), weights);
}

ReferenceModel::Inputs ReferenceModel::load(const Dataset& data, const Group& samples) const {
  const bool as_one = longest_ > 0 && parts_.replica.padding == Padding::global_batch;
  Batch batch = as_one ? data.gather_cut(samples, loss_type_, longest_) : data.gather(samples, loss_type_);
  for (at::Tensor& input : batch.inputs) {
    if (input.is_floating_point()) input = input.to(type_);
  }
  batch = batch.to_numbers(type_);
  Batch there = batch.on(in_.device);
  if (!in_.type && parts_.replica.channels_last) {
    for (at::Tensor& input : there.inputs) input = images_in_channels_last(input);
  }
  return {parts_.replica.loss.is_the_models() ? there.tensors() : there.inputs, batch};
}

std::vector<at::Tensor> ReferenceModel::run(const Inputs& inputs, const Group& samples, std::int64_t step) {
  const AutocastScope scope(in_.type ? std::nullopt : parts_.replica.autocast, in_.device);
  auto returned = model_->run(inputs.tensors, {parts_.replica.seed, step, samples});
  if (parts_.replica.loss.is_the_models() && returned.size() < 2)
    throw UserError(
        "the model returns one tensor: for loss.kind = \"model\" its forward returns the loss's sum and its weight");
  return returned;
}

at::Tensor ReferenceModel::loss_of(const std::vector<at::Tensor>& returned, const Batch& batch) const {
  if (parts_.replica.loss.is_the_models()) return returned[0].to(loss_type_);
  const Batch there = batch.on(in_.device);
  return parts_.replica.loss.sum(returned[0].to(loss_type_), there.targets, there.weights);
}

double ReferenceModel::weight_of(const std::vector<at::Tensor>& returned, const Batch& batch) const {
  return parts_.replica.loss.is_the_models() ? returned[1].item<double>()
                                             : parts_.replica.loss.weight(batch.targets, batch.weights);
}

BatchSums ReferenceModel::add(const Group& samples, std::int64_t step, std::size_t expected) {
  const Inputs inputs = load(parts_.data, samples);
  const auto returned = run(inputs, samples, step);
  const at::Tensor loss = loss_of(returned, inputs.batch);
  // A mean of the samples' losses, as one writes it by hand; the true weight corrects it at the end.
  loss.mul(scale_ / static_cast<double>(expected)).backward();
  return {loss.item<double>(), weight_of(returned, inputs.batch)};
}

Gradient ReferenceModel::take_gradient(double weight, std::size_t expected) {
  Gradient gradient;
  not_reached_.clear();
  for (const auto& [name, tensor] : model_->parameters()) {
    if (!tensor.requires_grad()) continue;
    const at::Tensor grad = tensor.grad().defined() ? tensor.grad() : at::zeros_like(tensor);
    if (!tensor.grad().defined()) not_reached_.push_back(name);
    gradient.push_back({name, as_numbers(grad).div_(scale_ / static_cast<double>(expected) * weight)});
    tensor.mutable_grad() = at::Tensor();
  }
  return gradient;
}

ReferenceModel::Answer ReferenceModel::gradient_of(const std::vector<Group>& groups, std::int64_t step) {
  std::size_t count = 0;
  longest_ = 0;
  for (const Group& group : groups) {
    count += group.size();
    longest_ = std::max(longest_, longest_of(parts_.data, group));
  }
  Answer answer;
  for (const Group& group : groups) {
    const BatchSums sums = add(group, step, count);
    answer.sums.loss += sums.loss;
    answer.sums.weight += sums.weight;
  }
  longest_ = 0;
  answer.gradient = take_gradient(answer.sums.weight, count);
  answer.not_reached = not_reached_;
  return answer;
}

BatchSums ReferenceModel::evaluate(const Dataset& data, const Group& samples, std::int64_t step,
                                   Loss::Correct& correct) {
  const at::NoGradGuard no_grad;
  model_->set_phase(Phase::evaluation);
  longest_ = longest_of(data);
  const Inputs inputs = load(data, samples);
  longest_ = 0;
  const auto returned = run(inputs, samples, step);
  model_->set_phase(Phase::training);
  const BatchSums sums{loss_of(returned, inputs.batch).item<double>(), weight_of(returned, inputs.batch)};
  if (!parts_.replica.loss.is_classification()) return sums;
  const auto [right, counted] =
      parts_.replica.loss.count_correct(returned[0].to(loss_type_), inputs.batch.on(in_.device).targets);
  correct.correct += right;
  correct.counted += counted;
  return sums;
}

std::vector<at::Tensor> ReferenceModel::forward(const Group& samples, std::int64_t step) {
  const at::NoGradGuard no_grad;
  return run(load(parts_.data, samples), samples, step);
}

}  // namespace onebatch
