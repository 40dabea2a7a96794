// From the top along half a cosine to a fraction of it.
#include "trainer/optim/schedule_kind.hpp"

#include <cmath>
#include <numbers>

namespace onebatch {

ScheduleKind cosine_schedule_kind() {
  ScheduleKind kind;
  kind.name = "cosine";
  kind.shares = {"final_lr_fraction"};
  kind.rate = [](const ScheduleConfiguration& schedule, const ScheduledStep& step) {
    const double final_lr = step.lr * schedule.final_lr_fraction;
    return final_lr + (step.lr - final_lr) * 0.5 * (1.0 + std::cos(std::numbers::pi * step.progress));
  };
  return kind;
}

}  // namespace onebatch
