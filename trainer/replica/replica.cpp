#include "trainer/replica/replica.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/shape_text.hpp"
#include "trainer/device/autocast.hpp"
#include "trainer/models/layout.hpp"
#include "trainer/replica/output_check.hpp"

#include <algorithm>

namespace onebatch {
at::ScalarType scalar_type(Precision precision) {
  switch (precision) {
    case Precision::float32: return at::kFloat;
    case Precision::float64: return at::kDouble;
    case Precision::bfloat16: return at::kBFloat16;
    case Precision::float16: return at::kHalf;
  }
  return at::kFloat;
}

std::optional<at::ScalarType> autocast_type(const PrecisionConfiguration& precision) {
  if (precision.compute == precision.parameters) return std::nullopt;
  return scalar_type(precision.compute);
}

std::int64_t num_outputs(const Configuration& configuration, const Dataset& data) {
  return configuration.model.num_classes != 0 ? configuration.model.num_classes : data.num_classes();
}

std::unique_ptr<Model> make_model_for(const Configuration& configuration, const Dataset& data, c10::Device device,
                                      at::ScalarType type, Returned returned) {
  auto model = make_model({.configuration = configuration.model,
                           .sample_shape = data.sample_shape(),
                           .num_classes = data.num_classes(),
                           .freeze_batch_norm = configuration.batch_norm.frozen,
                           .returns_loss = targets_of(configuration.loss) == Targets::none,
                           .seed = configuration.run.seed,
                           .returned = returned});
  model->move_to(device, type,
                 at::isReducedFloatingType(type) && configuration.precision.master_weights ? at::kFloat : type);
  if (configuration.precision.channels_last == Switch::on) put_in_channels_last(*model);
  return model;
}

GradientOptions gradient_options(const Configuration& configuration, std::byte* storage) {
  const at::ScalarType type = scalar_type(configuration.precision.parameters);
  const bool wider = at::isReducedFloatingType(type) && configuration.precision.master_weights;
  return {wider ? at::kFloat : type, configuration.run.deterministic == Determinism::bitwise, storage};
}

Replica::Replica(const Configuration& configuration, const Dataset& data, ComputeDevice& compute_device)
    : Replica(
          configuration, data, compute_device,
          make_model_for(configuration, data, compute_device.device(), scalar_type(configuration.precision.parameters)),
          nullptr) {}

Replica::Replica(const Configuration& configuration, const Dataset& data, ComputeDevice& compute_device,
                 std::unique_ptr<Model> ready_model, std::byte* gradient_storage, const Examination* examined)
    : device(compute_device),
      type(scalar_type(configuration.precision.parameters)),
      loss_type(type == at::kDouble ? at::kDouble : at::kFloat),
      autocast(autocast_type(configuration.precision)),
      seed(configuration.run.seed),
      augment(configuration.data.augment),
      channels_last(configuration.precision.channels_last == Switch::on),
      model(std::move(ready_model)),
      loss(configuration.loss, num_outputs(configuration, data)),
      gradients(model->parameters(), gradient_options(configuration, gradient_storage)),
      optimizer(configuration.optimizer, gradients),
      loss_scale(configuration.precision, configuration.batch.global_batch_size),
      batch_norm_layers(examined != nullptr ? examined->batch_norm_layers : model->batch_norm_layers()),
      running_statistics(examined != nullptr ? examined->batch_norm_statistics : model->running_statistics()),
      has_batch_statistics(!batch_norm_layers.empty()),
      shares_statistics(has_batch_statistics && configuration.batch_norm.mode != BatchNormMode::local) {
  loss.place(device.device(), loss_type);
  if (has_to_settle(loss, data)) check_outputs(*this, data, configuration);
}

namespace {

Batch laid_out(Batch batch, bool channels_last) {
  if (!channels_last) return batch;
  for (at::Tensor& input : batch.inputs) input = images_in_channels_last(input);
  return batch;
}

}  // namespace

Replica::Loaded Replica::load(const Dataset& data, std::span<const std::int64_t> samples) const {
  if (control != nullptr) control->note_progress();
  Batch batch = data.read(samples, loss_type);
  if (!batch.targets.defined() && !loss.is_the_models())
    throw UserError("the data has no targets: name them in data.target, or write loss.kind = \"model\"");
  const double weight = loss.is_the_models() ? 0.0 : loss.weight(batch.targets, batch.weights);
  return {laid_out(host_part().of(std::move(batch)).on(device.device()).to_numbers(type), channels_last), weight};
}

Batch HostPart::of(Batch batch) const {
  for (at::Tensor& input : batch.inputs) {
    if (input.is_floating_point()) input = input.to(type);
  }
  return device.is_cpu() ? laid_out(batch.to_numbers(type), channels_last) : batch;
}

namespace {

// Of one element, which may have a shape, as [1]: PyTorch's backward takes that too.
at::Tensor as_scalar(const at::Tensor& one, at::ScalarType type) {
  return (one.dim() == 0 ? one : one.reshape({})).to(type);
}

}  // namespace

Replica::Forward Replica::forward(const Batch& batch, const ForwardContext& context) {
  std::vector<at::Tensor> inputs = batch.inputs;
  if (loss.is_the_models()) {
    for (const at::Tensor& tensor : {batch.targets, batch.weights}) {
      if (tensor.defined()) inputs.push_back(tensor);
    }
  }
  std::vector<at::Tensor> returned;
  {
    const AutocastScope scope(autocast, device.device());
    returned = model->run(inputs, context);
  }
  if (loss.is_the_models()) {
    if (returned.size() < 2 || returned[0].numel() != 1 || returned[1].numel() != 1)
      throw UserError(
          "loss.kind = \"model\": the model's forward returns " +
          (returned.size() < 2 ? "one tensor " + shape_text(returned.at(0).sizes())
                               : shape_text(returned[0].sizes()) + " and " + shape_text(returned[1].sizes())) +
          ", not two scalars: return the loss's sum over the micro-batch and its weight, as (loss.sum(), weight)");
    // What else it returns lives as long as the loss.
    return {as_scalar(returned[0], loss_type), as_scalar(returned[1].detach(), loss_type),
            returned.size() > 2 ? returned[2] : at::Tensor()};
  }
  const at::Tensor outputs = returned.front().to(loss_type);
  return {loss.sum(outputs, batch.targets, batch.weights), {}, outputs};
}

std::vector<NamedTensor> Replica::own_statistics() const {
  if (!has_batch_statistics || shares_statistics) return {};
  const std::vector<std::string>& names = running_statistics;
  std::vector<NamedTensor> own = model->buffers();
  std::erase_if(own, [&](const NamedTensor& buffer) { return std::ranges::find(names, buffer.name) == names.end(); });
  return own;
}

std::vector<NamedTensor> Replica::other_buffers() const {
  const std::vector<std::string>& names = running_statistics;
  std::vector<NamedTensor> others = model->buffers();
  std::erase_if(others,
                [&](const NamedTensor& buffer) { return std::ranges::find(names, buffer.name) != names.end(); });
  return others;
}

}  // namespace onebatch
