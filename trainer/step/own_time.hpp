// The time that a rank's own micro-batches take, where exchanges with other ranks lie between.
#pragma once

#include "trainer/device/compute_device.hpp"
#include "trainer/step/step_runner.hpp"

#include <chrono>
#include <memory>
#include <vector>

namespace onebatch {

/// Runs from start() on.
class OwnTime {
 public:
  explicit OwnTime(ComputeDevice& device) : device_(device) {}

  void start();
  /// When the device has done all of it: what is exchanged was read.
  void stop();
  /// Of the time since start() this was none of the rank's own.
  void leave_out(const DataWait& wait);
  void count(const MicroBatchRun& completed) { completed_.push_back(completed); }
  /// Of these sums: the time; their last part is unread, as `numbers` are.
  void finish(LocalSums& sums, const at::Tensor& numbers);

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] double seconds() const;  // since it was started
  void pace();

  ComputeDevice& device_;
  Clock::time_point begun_ = Clock::now();
  std::shared_ptr<const DeviceMoment> begun_there_;  // where the device was then
  std::vector<DataWait> left_out_;                   // since then
  double stopped_seconds_ = 0.0;
  std::vector<MicroBatchRun> completed_;  // since it was stopped
};

}  // namespace onebatch
