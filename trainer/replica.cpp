#include "trainer/replica.hpp"

#include "trainer/fault_point.hpp"

#include <ATen/ops/zeros.h>

#include <chrono>
#include <stdexcept>

namespace onebatch {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct MicroBatch {
  at::Tensor loss_sum;
  double weight;
};

MicroBatch run_micro_batch(Replica& replica, const Dataset& data, std::span<const std::int64_t> samples, std::int64_t step,
                           const std::function<void()>& before_backward) {
  const c10::Device device = replica.device.device();
  const Batch batch = [&] {
    const Span span(replica.timeline, "load", "data");
    fault_point("loader", step);
    return data.gather(samples, replica.type);
  }();
  const Span span(replica.timeline, "micro-batch", "compute");
  fault_point("model", step);
  const double weight = replica.loss.weight(batch.targets);
  const at::Tensor outputs = replica.model->forward(batch.inputs.to(device), {replica.seed, step, samples});
  const at::Tensor loss = replica.loss.sum(outputs, batch.targets.to(device));
  if (before_backward) before_backward();
  loss.backward();
  return {loss.detach(), weight};
}

}  // namespace

at::ScalarType scalar_type(Precision precision) {
  return precision == Precision::float64 ? at::kDouble : at::kFloat;
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
      seed(configuration.run.seed),
      model(std::move(ready_model)),
      loss(configuration.loss, num_outputs(configuration, data)),
      gradients(model->parameters(), gradient_storage),
      optimizer(configuration.optimizer, gradients) {}

LocalSums accumulate_gradient(Replica& replica, const Dataset& data, std::span<const std::int64_t> samples,
                              const std::vector<MicroBatchRun>& micro_batches, std::int64_t step,
                              const std::function<void()>& before_last_backward) {
  const auto start = Clock::now();
  LocalSums sums;
  // Summed where it is made and read once: reading a GPU's loss after every micro-batch would hold the next one up.
  at::Tensor loss_sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(replica.device.device()));
  std::size_t begin = 0;
  for (const auto& [size, count] : micro_batches) {
    for (std::int64_t i = 0; i < count; ++i, begin += static_cast<std::size_t>(size)) {
      const auto part = samples.subspan(begin, static_cast<std::size_t>(size));
      const bool last = begin + part.size() == samples.size();
      const MicroBatch one = run_micro_batch(replica, data, part, step, last ? before_last_backward : std::function<void()>());
      loss_sum.add_(one.loss_sum);
      sums.weight += one.weight;
    }
  }
  if (begin != samples.size()) throw std::logic_error("the plan's micro-batches do not add up to the rank's share");
  sums.loss = loss_sum.item<double>();
  replica.device.synchronize();
  {
    const Span span(replica.timeline, "pace", "compute");
    replica.device.pace(seconds_since(start));
  }
  sums.compute_seconds = seconds_since(start);
  return sums;
}

}  // namespace onebatch
