#include "trainer/optim/pace.hpp"

#include "trainer/optim/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr double k_most_steps = 1e18;

// To the nearest whole number.
std::int64_t whole(double steps) {
  return std::llround(std::min(steps, k_most_steps));
}

std::int64_t warmup_in_steps(const ScheduleConfiguration& schedule, std::int64_t steps_per_epoch, std::int64_t total) {
  if (schedule.warmup_epochs > 0.0) return whole(schedule.warmup_epochs * static_cast<double>(steps_per_epoch));
  if (schedule.warmup_fraction > 0.0) return whole(schedule.warmup_fraction * static_cast<double>(total));
  return schedule.warmup_steps;
}

}  // namespace

double scaled_lr(const OptimizerConfiguration& optimizer, std::int64_t global_batch_size) {
  const double ratio = static_cast<double>(global_batch_size) / static_cast<double>(optimizer.lr_batch_size);
  switch (optimizer.lr_scaling) {
    case LrScaling::none: return optimizer.lr;
    case LrScaling::linear: return optimizer.lr * ratio;
    case LrScaling::square_root: return optimizer.lr * std::sqrt(ratio);
  }
  return optimizer.lr;
}

Pace::Pace(const Configuration& configuration, const SampleOrder& order, std::int64_t done)
    : schedule_(configuration.schedule),
      lr_(scaled_lr(configuration.optimizer, configuration.batch.global_batch_size)) {
  const RunConfiguration& run = configuration.run;
  const std::int64_t until_epochs = done + order.steps_until_epoch(run.epochs.value_or(1));
  total_steps_ = run.max_steps.value_or(until_epochs);
  if (run.epochs && run.max_steps) {
    total_steps_ = std::min(until_epochs, *run.max_steps);
    note_end(run, until_epochs);
  }
  schedule_.warmup_steps = warmup_in_steps(configuration.schedule, order.steps_per_epoch(), total_steps_);
  note_scaling(configuration.optimizer, configuration.batch.global_batch_size);
}

void Pace::note_end(const RunConfiguration& run, std::int64_t until_epochs) {
  const bool by_epochs = until_epochs < *run.max_steps;
  notes_.push_back(by_epochs
                       ? fmt::format("the run ends with run.epochs = {}, after step {}: before run.max_steps = {}",
                                     *run.epochs, until_epochs, *run.max_steps)
                       : fmt::format("the run ends with run.max_steps = {}: run.epochs = {} would be {} steps",
                                     *run.max_steps, *run.epochs, until_epochs));
}

void Pace::note_scaling(const OptimizerConfiguration& optimizer, std::int64_t global_batch_size) {
  if (optimizer.lr_scaling == LrScaling::none) return;
  notes_.push_back(fmt::format("optimizer.lr = {:g} is meant for batches of {}: at {} it is {:g} (lr_scaling = \"{}\")",
                               optimizer.lr, optimizer.lr_batch_size, global_batch_size, lr_,
                               optimizer.lr_scaling == LrScaling::linear ? "linear" : "sqrt"));
}

double Pace::learning_rate(std::int64_t step) const {
  return onebatch::learning_rate(schedule_, lr_, step, total_steps_);
}

}  // namespace onebatch
