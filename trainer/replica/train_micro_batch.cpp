#include "trainer/replica/train_micro_batch.hpp"

#include "trainer/base/error.hpp"
#include "trainer/images/image_mixing.hpp"
#include "trainer/models/compiled_program.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <optional>

namespace onebatch {
namespace {

// Where images are mixed a compiled loss takes two labels of each, also of those that are not, as of the probe.
Batch with_two_labels(Batch batch, at::ScalarType type) {
  const at::Tensor own =
      batch.weights.defined() ? batch.weights : at::ones({batch.targets.size(0)}, batch.targets.options().dtype(type));
  batch.weights = at::stack({own, at::zeros_like(own)}, 1);
  batch.targets = at::stack({batch.targets, batch.targets}, 1);
  return batch;
}

// Where native code adds its gradients: of parameters that have none in this run, somewhere.
std::vector<at::Tensor> sums_for(const FlatGradients& gradients, const std::vector<at::Tensor>& trained) {
  std::int64_t largest = 0;
  for (const at::Tensor& parameter : trained) {
    if (!gradients.index_of(parameter)) largest = std::max(largest, parameter.numel());
  }
  const at::Tensor unread = at::empty({largest}, trained.front().options().requires_grad(false));
  std::vector<at::Tensor> sums;
  for (const at::Tensor& parameter : trained) {
    const auto index = gradients.index_of(parameter);
    TORCH_INTERNAL_ASSERT(!index || gradients.is_view(*index), "native code adds in the parameters' type");
    sums.push_back(index ? gradients.views()[*index].detach()
                         : unread.narrow(0, 0, parameter.numel()).view(parameter.sizes()));
  }
  return sums;
}

// Of the first micro-batch of a step: its code writes large gradients where those of the step before are.
std::vector<std::size_t> let_overwrite(const FlatGradients& gradients, const CompiledProgram& compiled) {
  std::vector<std::size_t> places;
  std::vector<std::size_t> parameters;
  for (const std::size_t place : compiled.overwritten()) {
    const auto index = gradients.index_of(compiled.trained()[place]);
    if (!index) continue;
    places.push_back(place);
    parameters.push_back(*index);
  }
  return gradients.zero_unwritten(parameters) ? places : std::vector<std::size_t>();
}

}  // namespace

MicroGradient all_times(double factor, const Replica& replica) {
  return {at::full({}, factor, at::TensorOptions().device(replica.device.device()).dtype(replica.loss_type))};
}

Replica::Forward train_uncompiled(Replica& replica, const Batch& batch, const ForwardContext& context,
                                  const MicroGradient& gradient) {
  replica.gradients.zero_unwritten();
  const Replica::Forward made = replica.forward(batch, context);
  const at::Tensor factor = gradient.factor.to(made.loss.scalar_type()).expand_as(made.loss);
  std::optional<FlatGradients::Gathering> gathering;
  if (replica.device.device().is_cuda()) gathering.emplace(replica.gradients);
  if (!gradient.of) {
    made.loss.backward(factor);
  } else if (!gradient.of->empty()) {
    std::vector<at::Tensor> inputs;
    for (const std::size_t index : *gradient.of) inputs.push_back(replica.gradients.parameters()[index].tensor);
    torch::autograd::backward({made.loss}, {factor}, std::nullopt, false, inputs);
  }
  if (gathering) gathering->finish();
  return {made.loss.detach(), made.weight, made.outputs.defined() ? made.outputs.detach() : at::Tensor()};
}

Replica::Forward train_micro_batch(Replica& replica, const Batch& given, const ForwardContext& context,
                                   const MicroGradient& gradient) {
  const MayBeCompiled* const owner = compiled_of(*replica.model);
  // A BatchNorm of one value per channel is refused, which the program does and its native code does not.
  if (owner == nullptr ||
      (replica.has_batch_statistics && !owner->compiled->shares_statistics() && context.samples.size() == 1))
    return train_uncompiled(replica, given, context, gradient);
  TORCH_INTERNAL_ASSERT(!gradient.of, "native code makes all gradients or none");
  const bool is_unmixed = is_mixing(replica.augment) && given.targets.dim() == 1;
  const Batch batch = is_unmixed ? with_two_labels(given, replica.loss_type) : given;
  if (batch.weights.defined() && !replica.loss.is_the_models() && !replica.loss.is_classification())
    throw UserError("model.compiled: a compiled loss of squared errors takes no weights of labels: leave it out");
  std::vector<at::Tensor> inputs = batch.inputs;
  const bool are_classes = batch.targets.defined() && batch.targets.scalar_type() == at::kLong;
  const bool one_hot = are_classes && !replica.loss.is_the_models() && !replica.loss.is_classification();
  const at::Tensor targets =
      one_hot ? at::one_hot(batch.targets, replica.loss.num_classes()).to(replica.loss_type) : batch.targets;
  for (const at::Tensor& tensor : {targets, batch.weights}) {
    if (tensor.defined()) inputs.push_back(tensor);
  }
  owner->check_inputs(replica.loss.is_the_models() ? inputs : batch.inputs);
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor>& trained = owner->compiled->trained();
  const at::Tensor factor = gradient.factor.to(replica.loss_type).reshape({});
  const auto note = [&](std::size_t place) {
    if (const auto index = replica.gradients.index_of(trained[place])) replica.gradients.note_added(*index);
  };
  const std::vector<std::size_t> unwritten = let_overwrite(replica.gradients, *owner->compiled);
  const CompiledProgram::Made made =
      owner->compiled->run({inputs, context, factor, sums_for(replica.gradients, trained), note, unwritten});
  return {made.loss.reshape({}), made.weight, {}};
}

}  // namespace onebatch
