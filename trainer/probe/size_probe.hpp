// One rank's trials of micro-batch sizes, in the state in which it will train.
#pragma once

#include "trainer/probe/search.hpp"
#include "trainer/replica/replica.hpp"
#include "trainer/step/step_runner.hpp"

namespace onebatch {

class SizeProbe {
 public:
  /// `num_steps` optimizer steps make a trial, of two micro-batches in the first: there accumulation and fragmentation
  /// show.
  SizeProbe(const MicroBatchRunner& runner, const Dataset& data, int num_steps = 1)
      : runner_(runner), replica_(runner.replica()), data_(data), num_steps_(num_steps) {}

  /// With what the device says of its memory as it is now.
  [[nodiscard]] SearchOptions search_options();
  /// Real samples, real steps. Changes the replica: restore it from a ReplicaSnapshot. Anything but out-of-memory and
  /// BatchNorm's refusal of so few samples is thrown (Note [Only out-of-memory means does not fit]).
  TrialResult run_trial(std::int64_t size);
  /// Forward and backward of one micro-batch: its seconds.
  double micro_step(std::int64_t size);
  /// The rest of a step but the reduction.
  void update();

 private:
  // Throws where that is what the error means.
  void refuse_without_deterministic_form(const std::exception& error);

  const MicroBatchRunner& runner_;
  Replica& replica_;
  const Dataset& data_;
  int num_steps_;
};

}  // namespace onebatch
