// A rank's part of a step: the summed gradient of its micro-batches, also where one of them turns out not to fit.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/replica/replica.hpp"
#include "trainer/step/step_runner.hpp"

#include <functional>
#include <stdexcept>

namespace onebatch {

/// A micro-batch ran out of memory and cannot be split, since its BatchNorm statistics would be others, or since native
/// code has added some of its gradient: the step has to be done again. Of k_beside_graphs it ran out beside CUDA
/// graphs, which are given up by then: it may fit now.
class MicroBatchDoesNotFit : public std::runtime_error {
 public:
  static constexpr std::int64_t k_beside_graphs = 0;

  explicit MicroBatchDoesNotFit(std::int64_t size);
  [[nodiscard]] std::int64_t size() const { return size_; }

 private:
  std::int64_t size_;
};

/// Of the numbers that the device has: `later`, by the caller, together with others.
enum class Reads { now, later };

struct AccumulationOptions {
  /// `begin` before the last micro-batch; who is told of each parameter by its backward listens himself, where
  /// micro-batches run one after the other.
  FinalParameters told = {};
  /// A micro-batch that runs out of memory is done in halves. Without it the error is thrown, as a probe wants.
  bool split_on_out_of_memory = false;
  /// Who shares BatchNorm's statistics, where the replica's mode says so: then it is collective over them. None: this
  /// rank alone.
  comm::Communicator* ranks = nullptr;
  /// What the samples are a part of. Empty: they are all of it.
  std::span<const std::int64_t> global_batch = {};
  /// Who has read them ahead.
  Ahead ahead = {};
  /// None: kernel by kernel.
  StepGraphs* graphs = nullptr;
  Reads reads = Reads::now;
};

/// A rank's samples by micro-batch, in order. Throws std::logic_error where the sizes do not add up to them.
std::vector<std::span<const std::int64_t>> micro_batches_of(std::span<const std::int64_t> samples,
                                                            const std::vector<MicroBatchRun>& micro_batches);

/// Forward, summed loss and backward of the micro-batches over `samples` (the sizes add up to it): adds their gradients
/// into the flat buffer.
///
/// Note [Halves of a micro-batch]. Accumulation is by parameter: when a backward runs out of memory, some parameters
/// have the whole micro-batch's gradient and the others nothing of it. The halves' backwards are asked for the others
/// alone. So the step's gradient is that of all its samples, each once. In the last micro-batch a parameter counts as
/// final when the last half has reached it.
///
/// Throws MicroBatchDoesNotFit where the model has BatchNorm in training, whose statistics halves would change, where
/// the sum is reproducible, or where native code, which does not tell all that it had added, trains the model; and
/// DoesNotFitError where a single sample does not fit.
LocalSums accumulate_gradient(const MicroBatchRunner& runner, const Dataset& data,
                              std::span<const std::int64_t> samples, const std::vector<MicroBatchRun>& micro_batches,
                              std::int64_t step, const AccumulationOptions& options = {});

}  // namespace onebatch
