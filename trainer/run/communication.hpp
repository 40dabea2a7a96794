// What the ranks of a run communicate by: one queue, the collectives on host memory, NCCL where there are GPUs to use
// it.
#pragma once

#include "comm/collective_queue.hpp"
#include "comm/world.hpp"
#include "trainer/base/configuration.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/events/event_stream.hpp"

#include <memory>

namespace onebatch {

class Communication {
 public:
  /// Says what was asked for and cannot be had. Collective.
  Communication(const Configuration& configuration, const ComputeDevice& device, comm::World& world,
                EventStream& events);
  Communication(const Communication&) = delete;
  Communication& operator=(const Communication&) = delete;
  ~Communication() { give_up(); }

  /// On host memory; behind whatever is on the queue.
  [[nodiscard]] comm::Communicator& control() { return queued_ ? *queued_ : world_.control(); }
  /// What carries the gradient. To be called through the queue only.
  [[nodiscard]] comm::Communicator& carrier() { return nccl_ ? *nccl_ : world_.control(); }
  [[nodiscard]] comm::CollectiveQueue& queue() { return *queue_; }
  [[nodiscard]] bool overlap() const { return queue_->in_background(); }
  /// Collective.
  void close();
  /// Where something has failed: what is on the queue for NCCL ends before what it works on goes away.
  void give_up();

 private:
  comm::World& world_;
  std::unique_ptr<comm::CollectiveQueue> queue_;
  std::unique_ptr<comm::QueuedCommunicator> queued_;
  std::unique_ptr<comm::Communicator> nccl_;
};

}  // namespace onebatch
