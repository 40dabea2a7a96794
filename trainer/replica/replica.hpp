// One rank's copy of everything that is trained.
#pragma once

#include "trainer/base/plan.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/events/timeline.hpp"
#include "trainer/gradients/flat_gradients.hpp"
#include "trainer/gradients/loss_scale.hpp"
#include "trainer/graph/examination.hpp"
#include "trainer/models/loss.hpp"
#include "trainer/optim/optimizer.hpp"

#include <functional>
#include <memory>

namespace onebatch {

namespace comm {
class Communicator;
}
class ReplicaSnapshot;

/// How far a micro-batch of sequences is padded: to the longest of the global batch that it is a part of, as in one
/// batch, or, where a sample's loss and gradient are seen not to depend on it, to the longest in it.
enum class Padding { global_batch, micro_batch };

/// What of loading a micro-batch is the host's alone: any thread may do it, and where it was done it changes nothing.
struct HostPart {
  c10::Device device;
  at::ScalarType type;  // the parameters'
  bool channels_last;

  [[nodiscard]] Batch of(Batch batch) const;
};

/// Model, gradient, optimizer and loss on one device. Members are destroyed in the reverse order: the gradient before
/// the model.
struct Replica {
  /// Builds the model on the device and allocates gradient and optimizer state. Where there is a label per position, a
  /// forward settles how the loss reads the outputs. May throw an out-of-memory error.
  Replica(const Configuration& configuration, const Dataset& data, ComputeDevice& compute_device);
  /// With a model that is built, and the gradient in `gradient_storage` (FlatGradients::bytes_needed), or on the device
  /// where that is null. `examined`: what was seen of it; null: its BatchNorms are those that it names.
  Replica(const Configuration& configuration, const Dataset& data, ComputeDevice& compute_device,
          std::unique_ptr<Model> ready_model, std::byte* gradient_storage, const Examination* examined = nullptr);
  /// A micro-batch on the device, and its weight, which is 0 where the model tells it.
  struct Loaded {
    Batch batch;
    double weight = 0.0;
  };
  Loaded load(const Dataset& data, std::span<const std::int64_t> samples) const;
  [[nodiscard]] HostPart host_part() const { return {device.device(), type, channels_last}; }

  struct Forward {
    at::Tensor loss;     // the sum, a scalar on the graph
    at::Tensor weight;   // a scalar, where the model tells it; else undefined
    at::Tensor outputs;  // undefined where the model returns its loss
  };
  Forward forward(const Batch& batch, const ForwardContext& context);

  /// Buffers of which every rank has its own: the running statistics of local BatchNorm in training.
  [[nodiscard]] std::vector<NamedTensor> own_statistics() const;
  /// Buffers that are no statistics: the same on every rank.
  [[nodiscard]] std::vector<NamedTensor> other_buffers() const;

  ComputeDevice& device;
  at::ScalarType type;                     // the parameters'
  at::ScalarType loss_type;                // what outputs are widened to
  std::optional<at::ScalarType> autocast;  // forwards in a shorter type
  std::uint64_t seed;
  AugmentConfiguration augment;
  bool channels_last;  // how images lie
  std::unique_ptr<Model> model;
  Loss loss;
  FlatGradients gradients;
  Optimizer optimizer;
  LossScale loss_scale;
  std::vector<std::string> batch_norm_layers;   // that take statistics of their batch in training
  std::vector<std::string> running_statistics;  // buffers that those update
  bool has_batch_statistics;  // there are any: a sample's gradient depends on which others are in its micro-batch
  bool shares_statistics;     // of more than one micro-batch: running statistics are the same on every rank
  Padding padding = Padding::global_batch;
  Timeline* timeline = nullptr;           // where spans go; none: nowhere
  comm::Communicator* control = nullptr;  // is told before every micro-batch that this rank goes on; none: nobody is
  std::weak_ptr<const ReplicaSnapshot> kept;  // see kept_state()
};

/// The model of a configuration for this data, on a device, in a type, and in channels_last where that is `on`. With
/// `float16` and `bfloat16` masters its BatchNorms stay in float32.
std::unique_ptr<Model> make_model_for(const Configuration& configuration, const Dataset& data, c10::Device device,
                                      at::ScalarType type, Returned returned = Returned::what_trains);

/// How a run sums its gradient.
GradientOptions gradient_options(const Configuration& configuration, std::byte* storage);

/// Outputs of the model: the configuration's number of classes, or the data's.
std::int64_t num_outputs(const Configuration& configuration, const Dataset& data);

/// A run's element type.
at::ScalarType scalar_type(Precision precision);
/// What forwards are computed in where that is not the parameters' type.
std::optional<at::ScalarType> autocast_type(const PrecisionConfiguration& precision);

}  // namespace onebatch
