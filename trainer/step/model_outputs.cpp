#include "trainer/step/model_outputs.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/shape_text.hpp"
#include "trainer/device/autocast.hpp"
#include "trainer/io/tensor_file.hpp"
#include "trainer/models/layout.hpp"
#include "trainer/models/loss.hpp"
#include "trainer/replica/replica.hpp"

#include <fmt/format.h>

namespace onebatch {
namespace {

void check_rows(const std::vector<at::Tensor>& outputs, std::size_t samples) {
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || output.dim() == 0 || output.size(0) != static_cast<std::int64_t>(samples))
      throw UserError(
          fmt::format("the model returns {} for {} samples: to predict, each output needs a row for each "
                      "sample",
                      output.defined() ? shape_text(output.sizes()) : "nothing", samples));
    if (!can_be_saved(output))
      throw UserError(
          fmt::format("the model returns {}, a type that safetensors files do not hold: let it return "
                      "floating-point or whole numbers",
                      c10::toString(output.scalar_type())));
  }
}

}  // namespace

ModelOutputs::ModelOutputs(const Configuration& configuration, Model& model, c10::Device device)
    : configuration_(configuration),
      model_(model),
      device_(device),
      type_(scalar_type(configuration.precision.parameters)),
      computes_its_loss_(targets_of(configuration.loss) == Targets::none) {
  model_.set_phase(Phase::evaluation);
}

Batch ModelOutputs::load(const Dataset& data, std::span<const std::int64_t> samples) const {
  const bool channels_last = configuration_.precision.channels_last == Switch::on;
  const HostPart host{device_, type_, channels_last};
  Batch batch = host.of(data.read(samples, type_ == at::kDouble ? at::kDouble : at::kFloat));
  batch = batch.on(device_).to_numbers(type_);
  if (!channels_last) return batch;
  for (at::Tensor& input : batch.inputs) input = images_in_channels_last(input);
  return batch;
}

std::vector<at::Tensor> ModelOutputs::of(const Dataset& data, std::span<const std::int64_t> samples) const {
  const Batch batch = load(data, samples);
  std::vector<at::Tensor> inputs = batch.inputs;
  if (computes_its_loss_) {
    for (const at::Tensor& tensor : {batch.targets, batch.weights}) {
      if (tensor.defined()) inputs.push_back(tensor);
    }
  }
  const AutocastScope scope(autocast_type(configuration_.precision), device_);
  std::vector<at::Tensor> outputs = model_.run(inputs, {configuration_.run.seed, 0, samples});
  if (computes_its_loss_) {
    if (outputs.size() <= 2)
      throw UserError(
          "loss.kind = \"model\": the model returns its loss's sum and its weight and no outputs, so that there is "
          "nothing to predict: take its weights home by onebatch export, into a model that returns its outputs");
    outputs.erase(outputs.begin(), outputs.begin() + 2);
  }
  check_rows(outputs, samples.size());
  return outputs;
}

}  // namespace onebatch
