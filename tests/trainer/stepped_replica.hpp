// A replica in a world of one on a simulated device, and what it takes to step it.
#pragma once

#include "comm/local_communicator.hpp"
#include "trainer/replica/replica_state.hpp"
#include "trainer/step/graph_step.hpp"
#include "trainer/step/step.hpp"

#include <memory>
#include <numeric>
#include <optional>
#include <vector>

namespace onebatch::testing {

/// A small ResNet on 200 synthetic images, trained with momentum.
inline Configuration small_resnet(std::int64_t global_batch_size) {
  Configuration c;
  c.data.train.kind = "synthetic";
  c.data.train.shape = {3, 16, 16};
  c.data.train.size = 200;
  c.model.kind = "resnet";
  c.model.depth = 8;
  c.model.stem = ResNetStem::cifar;
  c.batch.global_batch_size = global_batch_size;
  c.optimizer.kind = "sgd";
  c.optimizer.momentum = 0.9;
  return c;
}

class SteppedReplica {
 public:
  explicit SteppedReplica(const Configuration& configuration, const Clipping& clipping = {})
      : configuration_(configuration), data_(open_dataset(configuration.data.train, Split::train, 1)) {
    DeviceRequest request;
    request.simulate = {SimulatedDevice{}};
    device_ = bind_device(request);
    replica_ = std::make_unique<Replica>(configuration_, *data_, *device_);
    runner_.emplace(choose_runner(configuration_, *replica_));
    reducer_ = std::make_unique<GradientReducer>(alone_, queue_, replica_->gradients, *device_, ReducerOptions{});
    steps_ = std::make_unique<TrainingStep>(*runner_, *data_, *reducer_, alone_, clipping);
  }

  /// `count` samples, from the 12th on.
  static std::vector<std::int64_t> samples(std::int64_t count) {
    std::vector<std::int64_t> some(static_cast<std::size_t>(count));
    std::iota(some.begin(), some.end(), std::int64_t{11});
    return some;
  }

  [[nodiscard]] const std::shared_ptr<const Dataset>& data() const { return data_; }
  Replica& replica() { return *replica_; }
  TrainingStep& steps() { return *steps_; }
  [[nodiscard]] Digest digest() const { return digest_of(*replica_); }

 private:
  Configuration configuration_;
  std::shared_ptr<const Dataset> data_;
  std::unique_ptr<ComputeDevice> device_;
  std::unique_ptr<Replica> replica_;
  std::optional<MicroBatchRunner> runner_;
  comm::LocalCommunicator alone_;
  comm::CollectiveQueue queue_{comm::CollectiveQueue::Thread::callers};
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<TrainingStep> steps_;
};

}  // namespace onebatch::testing
