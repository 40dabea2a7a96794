#include "trainer/optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace onebatch {

double learning_rate(const ScheduleConfiguration& schedule, double lr, std::int64_t step, std::int64_t total_steps) {
  if (step < schedule.warmup_steps) return lr * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  const std::int64_t since = step - schedule.warmup_steps;
  const std::int64_t span = total_steps - schedule.warmup_steps - 1;  // from the top to the last step
  const double progress = span > 0 ? std::min(1.0, static_cast<double>(since) / static_cast<double>(span)) : 0.0;
  const double final_lr = lr * schedule.final_lr_fraction;
  const std::int64_t cuts = schedule.step_size > 0 ? since / schedule.step_size : 0;
  switch (schedule.kind) {
    case ScheduleKind::constant: return lr;
    case ScheduleKind::linear: return lr + (final_lr - lr) * progress;
    case ScheduleKind::cosine: return final_lr + (lr - final_lr) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    case ScheduleKind::step: return lr * std::pow(schedule.gamma, static_cast<double>(cuts));
  }
  return lr;
}

}  // namespace onebatch
