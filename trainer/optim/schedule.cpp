#include "trainer/optim/schedule.hpp"

#include "trainer/optim/schedule_kind.hpp"

#include <algorithm>

namespace onebatch {

double learning_rate(const ScheduleConfiguration& schedule, double lr, std::int64_t step, std::int64_t total_steps) {
  if (step < schedule.warmup_steps)
    return lr * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  const std::int64_t since = step - schedule.warmup_steps;
  const std::int64_t span = total_steps - schedule.warmup_steps - 1;  // from the top to the last step
  const double progress = span > 0 ? std::min(1.0, static_cast<double>(since) / static_cast<double>(span)) : 0.0;
  return chosen_kind<ScheduleKind>(schedule).rate(schedule, {lr, since, progress});
}

}  // namespace onebatch
