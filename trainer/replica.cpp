#include "trainer/replica.hpp"

#include "trainer/device/autocast.hpp"
#include "trainer/graph/graph_step.hpp"

namespace onebatch {
at::ScalarType scalar_type(Precision precision) {
  switch (precision) {
    case Precision::float32: return at::kFloat;
    case Precision::float64: return at::kDouble;
    case Precision::bfloat16: return at::kBFloat16;
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

std::unique_ptr<Model> make_model_for(const Configuration& configuration, const Dataset& data, c10::Device device, at::ScalarType type) {
  auto model = make_model({.configuration = configuration.model,
                           .sample_shape = data.sample_shape(),
                           .num_classes = data.num_classes(),
                           .freeze_batch_norm = configuration.batch_norm.frozen,
                           .seed = configuration.run.seed});
  model->move_to(device, type);
  return model;
}

Replica::Replica(const Configuration& configuration, const Dataset& data, ComputeDevice& compute_device)
    : Replica(configuration, data, compute_device,
              make_model_for(configuration, data, compute_device.device(), scalar_type(configuration.precision.parameters)), nullptr) {}

Replica::Replica(const Configuration& configuration, const Dataset& data, ComputeDevice& compute_device, std::unique_ptr<Model> ready_model,
                 std::byte* gradient_storage)
    : device(compute_device),
      type(scalar_type(configuration.precision.parameters)),
      autocast(autocast_type(configuration.precision)),
      seed(configuration.run.seed),
      model(std::move(ready_model)),
      loss(configuration.loss, num_outputs(configuration, data)),
      gradients(model->parameters(), gradient_storage),
      optimizer(configuration.optimizer, gradients),
      has_batch_statistics(!configuration.batch_norm.frozen && !model->batch_norm_layers().empty()) {
  const BatchNormMode mode = has_batch_statistics ? configuration.batch_norm.mode : BatchNormMode::local;
  if (mode != BatchNormMode::local || configuration.memory.recompute == Recompute::on)
    graph_step = std::make_unique<GraphStep>(GraphOptions{mode, configuration.memory.segments, AutogradGraph::left_out});
}

at::Tensor Replica::outputs(const at::Tensor& inputs, const ForwardContext& context) {
  const AutocastScope scope(autocast, device.device());
  return model->forward(inputs, context).to(type);
}

bool Replica::recompute() {
  if (graph_step) return false;
  graph_step = std::make_unique<GraphStep>(GraphOptions{});
  return true;
}

Replica::~Replica() = default;

}  // namespace onebatch
