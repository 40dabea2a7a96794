// How a rank's micro-batches of a step are run.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/base/plan.hpp"
#include "trainer/data/read_ahead.hpp"
#include "trainer/graph/saved_values.hpp"
#include "trainer/step/weight_sum.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace onebatch {

struct Replica;
class StepGraphs;

/// What only the device can tell of a rank's micro-batches, when it has done them.
struct UnreadSums {
  // float64: the loss's sum, and both of WeightSum's where the model tells. To be read, or copied on the device's
  // stream, before the next step begins.
  at::Tensor numbers;
  std::shared_ptr<const DeviceMoment> begin;  // of what compute_seconds does not have yet
  std::shared_ptr<const DeviceMoment> end;
  std::vector<DataWait> left_out;  // between the two: no computing
};

/// What one rank's micro-batches of one step came to.
struct LocalSums {
  double loss = 0.0;  // sum, not mean
  WeightSum weight;
  double compute_seconds = 0.0;           // of all micro-batches, a simulated device's slowness included
  double data_wait_seconds = 0.0;         // for samples: no part of those
  std::optional<UnreadSums> unread = {};  // what is missing in those three; see settle()
  std::int64_t out_of_memory_events = 0;  // micro-batches that were split
  std::int64_t failed_size = 0;           // the smallest of them; 0 where there was none
};

/// `read` are the elements of what was unread.
void settle(LocalSums& sums, std::span<const double> read);

/// A step's samples are a whole batch's, which a trial's are not: it may hold one value per channel, and says nothing
/// about that.
enum class Samples { of_a_step, of_a_trial };

/// Who is told of a step's parameters as they become final; functions may be empty.
struct FinalParameters {
  std::function<void()> begin;                // the last backwards of the step begin
  std::function<void(std::size_t)> is_final;  // by FlatGradients::parameters(); not of those that end with the step
  // Whether what they do about it keeps out of the way of exchanges between the ranks: else there may be none between.
  bool beside_exchanges = false;
};

/// What a StepRunner's samples are, who hears of its parameters, and what its rounds are recorded by.
struct ApartOptions {
  Samples which;
  const FinalParameters& told;
  StepGraphs* graphs;  // may be none
};

/// Runs them otherwise than one after the other, each forward and backward.
class StepRunner {
 public:
  StepRunner() = default;
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;
  virtual ~StepRunner() = default;

  /// As accumulate_gradient(), leaving unread what it can, with BatchNorm's statistics shared over the micro-batches of
  /// all `ranks` where shares_statistics() says so, which makes it collective over them.
  virtual LocalSums accumulate(Replica& replica, const ReadAhead& data, std::span<const std::int64_t> samples,
                               const std::vector<MicroBatchRun>& micro_batches, std::int64_t step,
                               comm::Communicator& ranks, const ApartOptions& options) = 0;

  /// Where what micro-batches keep of a share lies, if anything is kept of more than one: in host memory it is slower,
  /// but a share of any size fits.
  virtual void keep_in(SavedPlace place) = 0;
  /// Numbers that it has read from buffers may be others: after a checkpoint was loaded.
  virtual void forget() = 0;

  [[nodiscard]] virtual bool shares_statistics() const = 0;
  [[nodiscard]] virtual bool in_lock_step() const = 0;
  /// What the last step has kept of its micro-batches at most, of each sample; 0 where nothing is kept of more than one
  /// of them.
  [[nodiscard]] virtual double kept_bytes_per_sample() const = 0;
  /// Why native code gave way to the program in the last step; empty: it did not.
  [[nodiscard]] virtual std::string gave_way() const { return ""; }
  /// What a round's exchanges take, the shortest of a few tries. After a micro-batch has run. Collective.
  virtual double exchange_seconds(comm::Communicator& ranks) const = 0;
};

/// What runs a replica's micro-batches. Whoever makes steps of a replica has it beside that replica, which must live as
/// long.
class MicroBatchRunner {
 public:
  /// `apart`: by what it is taken apart; null: micro-batches run one after the other.
  explicit MicroBatchRunner(Replica& replica, std::unique_ptr<StepRunner> apart = nullptr)
      : replica_(&replica), apart_(std::move(apart)) {}

  [[nodiscard]] Replica& replica() const { return *replica_; }
  [[nodiscard]] StepRunner* apart() const { return apart_.get(); }
  void take_apart(std::unique_ptr<StepRunner> by) { apart_ = std::move(by); }

 private:
  Replica* replica_;
  std::unique_ptr<StepRunner> apart_;
};

}  // namespace onebatch
