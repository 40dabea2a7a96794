// From the top in a line to a fraction of it.
#include "trainer/optim/schedule_kind.hpp"
#include "trainer/settings/key_types.hpp"

namespace onebatch {

ScheduleKind linear_schedule_kind() {
  ScheduleKind kind;
  kind.name = "linear";
  kind.keys = {number_key(
      {"final_lr_fraction", Changes::result, "linear, cosine: the last step's rate over `lr`", "", Elsewhere::ignored},
      {0.0, 1.0}, &ScheduleConfiguration::final_lr_fraction)};
  kind.rate = [](const ScheduleConfiguration& schedule, const ScheduledStep& step) {
    return step.lr + (step.lr * schedule.final_lr_fraction - step.lr) * step.progress;
  };
  return kind;
}

}  // namespace onebatch
