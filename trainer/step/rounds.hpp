// Rounds of micro-batches that share BatchNorm's statistics: forward and backward, segment by segment.
#pragma once

#include "trainer/batch_norm/statistics.hpp"
#include "trainer/graph/saved_values.hpp"
#include "trainer/graph/segments.hpp"
#include "trainer/step/accumulation.hpp"
#include "trainer/step/meetings.hpp"
#include "trainer/step/own_time.hpp"
#include "trainer/step/segment_input.hpp"
#include "trainer/step/step_exchange.hpp"
#include "trainer/step/step_numbers.hpp"
#include "trainer/step/turns.hpp"

#include <map>
#include <memory>
#include <optional>

namespace onebatch {

/// A model, cut up for one micro-batch size.
struct Graph {
  Tape tape;
  std::vector<Segment> segments;
};

/// A segment of one micro-batch, run with gradients.
struct Run {
  std::map<Value, SegmentInput> inputs;  // those with a gradient; its BatchNorm's output too
  Environment made;
};

/// One micro-batch of a rank.
struct MicroBatch {
  ForwardContext context;
  const Graph* graph = nullptr;
  SavedValues kept;       // what later segments and the backward take
  SavedValues gradients;  // the loss's, by value, until the segment that made the value has used it
  Batch batch;            // all that native code takes
  std::vector<Run> runs;  // by segment, where nothing is computed twice

  [[nodiscard]] const Segment& segment(std::size_t index) const { return graph->segments[index]; }
  [[nodiscard]] bool has_gradient(Value value) const {
    return graph->tape.values[static_cast<std::size_t>(value)].requires_grad;
  }
};

/// A BatchNorm call's own tensors, and what is known of its batch while a round is under way.
struct Norm {
  Norm(const Tape& tape, const Segment& segment);

  const TapeCall& call;
  at::Tensor weight, bias, running_mean, running_var;
  std::int64_t channels;
  bool has_gradient;
  Moments moments;
  Normaliser by;
};

enum class Computes { once, twice };

class Rounds {
 public:
  /// `shape`: the graph of any size. With `twice` forwards keep nothing but what goes from segment to segment, and each
  /// segment is computed again for its backward.
  /// With `turns` each micro-batch is one call of the model's native code, which keeps all of its activations.
  Rounds(Replica& replica, const Graph& shape, Computes computes, std::shared_ptr<Turns> turns, StepNumbers numbers,
         comm::Communicator& ranks);

  /// Forward and backward of micro-batches that share their statistics with those that are met. Where these are told of
  /// parameters, it is of each segment whose backward is done, where the parameters are no other segment's. Collective.
  void run(std::vector<MicroBatch>& micro_batches, Meetings& meetings);

  /// How many micro-batches' statistics each rank sends apart, for all to merge in their order, so that who computed
  /// which changes no bit (Note [Bitwise]); 1: merged. To be set before anything else.
  void send_apart(std::size_t slots) { slots_ = slots; }
  /// From now on run() throws UserError, on all ranks, where a BatchNorm has one value per channel in all: it would be
  /// its own mean.
  void refuse_single_values() { refuses_single_values_ = true; }
  /// The counts of a round's exchanges.
  [[nodiscard]] std::vector<std::size_t> exchanges_of_a_round() const;

  [[nodiscard]] StepExchange& exchange() { return exchange_; }

  /// A micro-batch of so many samples is done.
  void count(std::size_t samples) { time_.count({static_cast<std::int64_t>(samples), 1}); }
  /// Of the time since the last exchange this was none of the rank's own.
  void leave_out(const DataWait& wait) { time_.leave_out(wait); }
  /// The loss and this rank's own time, of which the last part is unread.
  void finish(LocalSums& sums) { time_.finish(sums, numbers_.unread(replica_)); }
  /// The most that has been kept of the first micro-batch at any time, of each sample; infinity: all of its
  /// activations.
  [[nodiscard]] double kept_bytes_per_sample() const { return kept_bytes_per_sample_; }

 private:
  void run_segments(std::vector<MicroBatch>& micro_batches);
  // Each by one call of native code, which waits in its BatchNorms for the others.
  void run_native(std::vector<MicroBatch>& micro_batches);
  void train_native(const MicroBatch& micro_batch);
  void settle_segments(const std::vector<MicroBatch>& micro_batches);
  void forward(std::vector<MicroBatch>& micro_batches);
  void share_moments(std::vector<MicroBatch>& micro_batches, std::size_t index);
  void settle_moments(const std::vector<Moments>& mine, std::size_t index);
  // The segment whose BatchNorm makes it, where one does.
  [[nodiscard]] std::optional<std::size_t> norm_that_makes(const MicroBatch& micro_batch, Value value) const;
  // A value from another segment.
  at::Tensor taken(MicroBatch& micro_batch, Value value) const;
  at::Tensor taken_by(const Segment& segment, MicroBatch& micro_batch, Value value) const;
  at::Tensor norm_input(MicroBatch& micro_batch, std::size_t index) const;
  at::Tensor normalised_input(MicroBatch& micro_batch, std::size_t index) const;
  // What taken() and others are about to ask for of what is kept.
  void fetch(MicroBatch& micro_batch, Value value) const;
  void fetch_for_forward(MicroBatch& micro_batch, std::size_t index) const;
  void fetch_for_backward(MicroBatch& micro_batch, std::size_t index) const;
  void fetch_for_norm(MicroBatch& micro_batch, std::size_t index) const;
  // What leaves the segment is kept, everything else goes.
  void run_once(MicroBatch& micro_batch, std::size_t index);
  Run run_with_gradients(MicroBatch& micro_batch, std::size_t index);
  void backward(std::vector<MicroBatch>& micro_batches, std::size_t index);
  void backward_of(MicroBatch& micro_batch, std::size_t index, Run& run);
  // The gradient at the BatchNorm's output, which each micro-batch has put by, becomes that at its input.
  void backward_of_norm(std::vector<MicroBatch>& micro_batches, std::size_t index, const std::vector<OutputSums>& mine);
  std::vector<Moments> of_all_ranks(const std::vector<Moments>& mine, const Norm& norm);
  std::vector<OutputSums> of_all_ranks(const std::vector<OutputSums>& mine, const Norm& norm);
  OutputSums total_of(const std::vector<OutputSums>& mine, const Norm& norm);
  void settle_final(const std::vector<MicroBatch>& micro_batches);
  void tell_of(std::size_t index) const;
  void count_kept(const std::vector<MicroBatch>& micro_batches);
  void add_shared_gradients(MicroBatch& micro_batch);
  // As one batch of the whole round would leave the buffers.
  void commit();

  Replica& replica_;
  const Graph& shape_;  // any size's: their BatchNorms are the same
  bool twice_;
  std::shared_ptr<Turns> turns_;  // of native code; else null
  std::size_t slots_ = 1;
  bool refuses_single_values_ = false;
  StepExchange exchange_;
  OwnTime time_;
  StepNumbers numbers_;
  std::vector<std::unique_ptr<Norm>> norms_;              // by segment; null where it begins with none
  Meetings* meetings_ = nullptr;                          // of run()
  std::vector<std::optional<std::size_t>> only_readers_;  // by parameter, in the last run()
  double kept_bytes_per_sample_ = 0.0;
};

}  // namespace onebatch
