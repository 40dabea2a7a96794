// How long a run trains, and at which learning rates: what the configuration says of it in steps, in epochs and in
// batches, as steps.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/data/sample_order.hpp"

#include <string>
#include <vector>

namespace onebatch {

class Pace {
 public:
  /// `order` stands where `done` steps are done.
  Pace(const Configuration& configuration, const SampleOrder& order, std::int64_t done);

  /// Of run.epochs and run.max_steps the one that ends first.
  [[nodiscard]] std::int64_t total_steps() const { return total_steps_; }
  [[nodiscard]] std::int64_t warmup_steps() const { return schedule_.warmup_steps; }
  /// Of the 0-based optimizer step.
  [[nodiscard]] double learning_rate(std::int64_t step) const;
  /// What another configuration would not have led one to expect, a line each.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  void note_end(const RunConfiguration& run, std::int64_t until_epochs);
  void note_scaling(const OptimizerConfiguration& optimizer, std::int64_t global_batch_size);

  ScheduleConfiguration schedule_;  // its warm-up in steps
  double lr_;                       // at the top
  std::int64_t total_steps_;
  std::vector<std::string> notes_;
};

/// optimizer.lr as optimizer.lr_scaling makes it one for this global batch.
double scaled_lr(const OptimizerConfiguration& optimizer, std::int64_t global_batch_size);

}  // namespace onebatch
