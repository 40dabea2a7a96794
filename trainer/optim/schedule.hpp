// Learning-rate schedules: pure functions of the optimizer step.
#pragma once

#include "trainer/base/configuration.hpp"

namespace onebatch {

/// The learning rate of the 0-based optimizer step `step` of `total_steps`. Warm-up is linear from lr/warmup_steps to
/// lr; then constant, linear or cosine from lr to final_lr_fraction * lr at the last step, or lr * gamma^floor(steps
/// since warm-up / step_size).
double learning_rate(const ScheduleConfiguration& schedule, double lr, std::int64_t step, std::int64_t total_steps);

}  // namespace onebatch
