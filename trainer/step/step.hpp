// One optimizer step, from a global batch to new weights.
#pragma once

#include "trainer/gradients/clipping.hpp"
#include "trainer/gradients/reducer.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/step/accumulation.hpp"
#include "trainer/step/late_figures.hpp"

#include <array>
#include <exception>

namespace onebatch {

/// What all ranks together did in a step. The same on every rank.
struct StepTotals {
  double loss_sum = 0.0;
  double weight = 0.0;
  bool stop_requested = false;                  // on any rank
  bool save_due = false;                        // on any rank
  std::vector<double> compute_seconds;          // per rank
  std::vector<double> data_wait_seconds;        // per rank, no part of those
  std::vector<std::int64_t> memory_peak_bytes;  // per rank
  double exposed_comm_seconds = 0.0;            // the rank that waited least: what it waited for is communication alone
  double grad_norm = 0.0;
  std::int64_t reduced_bytes = 0;  // that each rank handed to the communicator: the gradient and the sums beside it
  bool skipped = false;            // the global weight was zero
  bool overflowed = false;         // the gradient is not finite: nothing was updated
  bool can_go_on = true;           // false where no loss scale helps against that
  double loss_scale = 1.0;         // in this step
  bool is_late = false;            // loss, norm and times come with TrainingStep::settle()
  bool has_news = false;           // of any rank's graphs: say_news()
  // A rank ran out of memory and could not split: nothing was updated, the step is to be done again.
  bool discarded = false;
  std::int64_t out_of_memory_events = 0;   // of all ranks
  std::vector<std::int64_t> failed_sizes;  // per rank: the smallest micro-batch that ran out of memory, or 0
};

struct StepRequest {
  std::span<const std::int64_t> global_batch;  // sample indices in order
  std::int64_t epoch = 0;                      // whose random changes of samples are drawn
  const Plan& plan;                            // of exactly that many samples
  double lr = 0.0;
  std::int64_t step = 0;
  bool stop_requested = false;  // on this rank
  bool save_due = false;        // by this rank's clock: all are to save at the same step
  bool may_be_late = false;     // its figures: Note [Figures a step late]
  Loader* loader = nullptr;     // who has read this rank's samples ahead; none: nobody has
  /// What has failed on this rank beside the step: all ranks are told with the step's sums, and throw.
  std::exception_ptr failure = {};
  /// Told when the flat gradient is the global batch's, before it is clipped.
  std::function<void()> on_gradient = {};
  /// Told when this rank's micro-batches are done, before it tells the others; before the first write to parameters,
  /// optimizer or loss scale; and when all ranks know that one has failed.
  std::function<void()> before_sums = {};
  std::function<void()> before_update = {};
  std::function<void(bool on_this_rank)> on_failure = {};
};

class TrainingStep {
 public:
  TrainingStep(const MicroBatchRunner& runner, const Dataset& data, GradientReducer& reducer,
               comm::Communicator& control, const Clipping& clipping, StepGraphs* graphs = nullptr);

  /// Collective.
  StepTotals run(const StepRequest& request);

  /// Completes the totals of the earliest late step that was not: `overflowed` where its gradient was not finite, so
  /// that nothing was updated since. Waits until the device has done that step's backward.
  void settle(StepTotals& totals);
  /// Where that step has overflowed: model and optimizer are again as before it, and no step is late.
  void forget_late(std::int64_t step);

 private:
  // What this rank's micro-batches came to.
  struct Part {
    LocalSums sums;
    std::shared_ptr<const DeviceMoment> computed;  // where the device has done its micro-batches
    std::shared_ptr<const DeviceMoment> reduced;   // and where the gradient is that of all ranks
    std::exception_ptr failure;                    // of this rank
    bool discard = false;
  };

  // The stages of a step, in their order.
  void begin(const StepRequest& request);
  // Of each micro-batch of this rank: its gradient is added to the flat one.
  Part forward_and_backward(const StepRequest& request);
  // The flat gradient becomes that of all ranks. Collective.
  void reduce(Part& mine);
  // On sums, and on failures: every rank throws what the first that failed has said. Collective.
  StepTotals agree(const Part& mine, const StepRequest& request);
  // Buffers that are to be as before where memory ends in the middle of a micro-batch, and the step is discarded.
  [[nodiscard]] std::vector<NamedTensor> changed_by_what_may_be_discarded() const;
  // Where the sum is to be reproducible: whether it is. Collective.
  bool is_reproducible();
  // By the weight of all samples, and the loss scale with it.
  void divide_once(StepTotals& totals);
  // What the devices have to tell of the step, read once: the one wait for them. Collective.
  void read_figures(Part& mine, StepTotals& totals, const StepRequest& request);
  StepFigures own_figures(Part& mine, StepTotals& totals);
  // In the place of that: they stay on the device, as does the choice whether to update.
  [[nodiscard]] bool can_be_late(const Part& mine, const StepTotals& totals) const;
  void leave_figures(Part& mine, StepTotals& totals);

  KeptTensors& buffers_before_of(std::int64_t step) { return buffers_before_[static_cast<std::size_t>(step % 2)]; }
  void throw_failure(const std::exception_ptr& mine, const StepRequest& request);

  const MicroBatchRunner& runner_;
  Replica& replica_;
  const Dataset& data_;
  GradientReducer& reducer_;
  comm::Communicator& control_;
  Clipping clipping_;
  StepGraphs* graphs_;  // may be none
  LateFigures late_;
  std::array<KeptTensors, 2> buffers_before_;  // this step, and the one before it, which may be late
  std::vector<double> touched_;                // by any rank in this step, one per parameter
};

Clipping clipping_of(const OptimizerConfiguration& optimizer);

/// This rank's contiguous slice of a global batch.
std::span<const std::int64_t> slice_of_rank(std::span<const std::int64_t> global_batch, const Plan& plan, int rank);

}  // namespace onebatch
