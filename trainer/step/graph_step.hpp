// A rank's micro-batches of one step, run segment by segment, so that BatchNorm's statistics can be those of more than
// one micro-batch.
//
// Note [Exact BatchNorm]. The model's tape is cut before every BatchNorm. Forward, without gradients: all micro-batches
// go through one segment before any enters the next, so that mean and variance can be of all of them, on all ranks
// (Chan's formula merges counts, means and centred squares). Backward, last segment first: each micro-batch's segment
// is computed again with gradients from what it had taken, the gradients at the BatchNorm's outputs are summed over
// micro-batches and ranks, and form the gradient at its inputs. Two exchanges per BatchNorm and step, however many
// accumulation steps there are. Running statistics change once, as one large batch would leave them. Compiled programs
// do it by Note [Native code in turns].
//
// Note [Synchronised BatchNorm]. The same with one micro-batch of every rank at a time, which all ranks run in
// lock-step; nothing is computed twice. A rank that has none takes part with a count of zero.
//
// Note [Recomputation]. One micro-batch at a time, cut where little crosses: a forward that keeps what crosses, then,
// last segment first, each segment again with gradients. The same calls on the same bits give the same gradient;
// BatchNorms note their running statistics once.
#pragma once

#include "trainer/step/accumulation.hpp"
#include "trainer/step/recorded_work.hpp"
#include "trainer/step/rounds.hpp"

#include <map>
#include <memory>

namespace onebatch {

struct GraphOptions {
  /// local: each micro-batch and its BatchNorms by themselves, as the model is, but computed again segment by segment.
  BatchNormMode statistics = BatchNormMode::local;
  std::int64_t segments = 0;  // local: how many; 0 = as many as take the least memory
  AutogradGraph graph = AutogradGraph::left_out;
};

class GraphStep : public StepRunner {
 public:
  explicit GraphStep(const GraphOptions& options) : options_(options) {}

  void keep_in(SavedPlace place) override {
    place_ = options_.statistics == BatchNormMode::exact ? place : SavedPlace::device;
  }

  /// Throws StepAbandoned where another rank failed, CannotCapture where the model cannot be taken apart, and on all
  /// ranks UserError where a step's BatchNorm has one value per channel in all.
  LocalSums accumulate(Replica& replica, const ReadAhead& data, std::span<const std::int64_t> samples,
                       const std::vector<MicroBatchRun>& micro_batches, std::int64_t step, comm::Communicator& ranks,
                       const ApartOptions& options) override;

  /// Captures the model with a micro-batch of these samples, where none of its shapes was. Throws as accumulate() does.
  void watch(Replica& replica, const Dataset& data, std::span<const std::int64_t> samples, std::int64_t step);
  void forget() override {
    graphs_.clear();
    others_.clear();
  }

  [[nodiscard]] bool shares_statistics() const override { return options_.statistics != BatchNormMode::local; }
  [[nodiscard]] bool in_lock_step() const override { return options_.statistics == BatchNormMode::sync; }
  [[nodiscard]] double kept_bytes_per_sample() const override {
    return options_.statistics == BatchNormMode::exact ? kept_bytes_per_sample_ : 0.0;
  }
  [[nodiscard]] std::string gave_way() const override { return gave_way_; }
  double exchange_seconds(comm::Communicator& ranks) const override;

 private:
  const Graph& graph_of(Replica& replica, const Batch& batch, std::span<const std::int64_t> samples, std::int64_t step);
  static Batch load(Replica& replica, const Dataset& data, std::span<const std::int64_t> samples, std::int64_t step,
                    LocalSums& sums);
  MicroBatch micro_batch_of(Replica& replica, const Batch& batch, const ForwardContext& context, bool is_native);
  struct Underway;  // a step
  StepWork work_of(const Underway& of, std::vector<Batch> batches,
                   const std::vector<std::span<const std::int64_t>>& samples);
  void run_round(Underway& of, const std::vector<std::span<const std::int64_t>>& samples, StepGraphs* by,
                 const std::vector<std::int64_t>& others, LiveMeetings& live);
  [[nodiscard]] bool asks_for_quiet(StepGraphs& graphs, const std::vector<std::span<const std::int64_t>>& parts) const;

  [[nodiscard]] StepGraphs* step_graphs_for(const ApartOptions& options, bool is_native) const;

  GraphOptions options_;
  SavedPlace place_ = SavedPlace::device;
  double kept_bytes_per_sample_ = 0.0;
  std::string gave_way_;
  std::shared_ptr<Turns> turns_;  // of native code
  std::vector<std::vector<std::int64_t>>
      others_;  // by round of synchronised BatchNorm: all ranks' counts the last time
  std::map<std::vector<std::vector<std::int64_t>>, Graph> graphs_;  // by the shapes of a micro-batch's tensors
};

/// A GraphStep for the configuration's BatchNorm mode, whatever else it asks for.
std::unique_ptr<GraphStep> run_by_graph(const Configuration& configuration, const Replica& replica,
                                        AutogradGraph graph);

/// What runs the replica's steps as the configuration asks: where it is for more than one micro-batch after the other,
/// which are shared statistics or recomputation, a GraphStep.
MicroBatchRunner choose_runner(const Configuration& configuration, Replica& replica);

/// From now on activations are computed again in the backward instead of kept. False where they are already, where the
/// model is taken apart otherwise, or where its native code has no such variant.
bool recompute(MicroBatchRunner& runner);
[[nodiscard]] bool recomputes(const MicroBatchRunner& runner);
/// Takes it back, where native code does it. What is taken apart stays so.
void keep_activations(MicroBatchRunner& runner);

}  // namespace onebatch
