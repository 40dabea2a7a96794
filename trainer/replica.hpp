// One rank's copy of everything that is trained, and the accumulation of a gradient with it.
#pragma once

#include "trainer/data/dataset.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/gradients/flat_gradients.hpp"
#include "trainer/loss.hpp"
#include "trainer/metrics/timeline.hpp"
#include "trainer/optim/optimizer.hpp"
#include "trainer/plan/plan.hpp"

#include <functional>

namespace onebatch {

/// Model, gradient, optimizer and loss on one device. Members are destroyed in the reverse order: the gradient before the model.
struct Replica {
  /// Builds the model on the device and allocates gradient and optimizer state. May throw an out-of-memory error.
  Replica(const Configuration& configuration, const Dataset& data, ComputeDevice& compute_device);
  /// With a model that is built, and the gradient in `gradient_storage` (FlatGradients::bytes_needed), or on the device where that is null.
  Replica(const Configuration& configuration, const Dataset& data, ComputeDevice& compute_device, std::unique_ptr<Model> ready_model,
          std::byte* gradient_storage);

  ComputeDevice& device;
  at::ScalarType type;
  std::uint64_t seed;
  std::unique_ptr<Model> model;
  Loss loss;
  FlatGradients gradients;
  Optimizer optimizer;
  Timeline* timeline = nullptr;  // where spans go; none: nowhere
};

/// The model of a configuration for this data, on a device, in a type.
std::unique_ptr<Model> make_model_for(const Configuration& configuration, const Dataset& data, c10::Device device, at::ScalarType type);

/// Outputs of the model: the configuration's number of classes, or the data's.
std::int64_t num_outputs(const Configuration& configuration, const Dataset& data);

/// A run's element type.
at::ScalarType scalar_type(Precision precision);

/// What one rank's micro-batches of one step came to.
struct LocalSums {
  double loss = 0.0;  // sum, not mean
  double weight = 0.0;
  double compute_seconds = 0.0;  // of all micro-batches, a simulated device's slowness included
};

/// Forward, summed loss and backward of the micro-batches over `samples` (the sizes add up to it): adds their gradients into the flat
/// buffer.
/// `before_last_backward`, where given, is called before the backward of the last of them.
LocalSums accumulate_gradient(Replica& replica, const Dataset& data, std::span<const std::int64_t> samples,
                              const std::vector<MicroBatchRun>& micro_batches, std::int64_t step,
                              const std::function<void()>& before_last_backward = {});

}  // namespace onebatch
