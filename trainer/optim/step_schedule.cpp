// Cut by a factor every so many steps.
#include "trainer/optim/schedule_kind.hpp"
#include "trainer/settings/key_types.hpp"

#include <cmath>

namespace onebatch {

ScheduleKind step_schedule_kind() {
  ScheduleKind kind;
  kind.name = "step";
  kind.keys = {
      integer_key({"step_size", Changes::result, "step: optimizer steps between two cuts", "", Elsewhere::ignored}, 0,
                  k_any, &ScheduleConfiguration::step_size),
      number_key({"gamma", Changes::result, "step: the factor of a cut", "", Elsewhere::ignored}, {0.0, 1.0},
                 &ScheduleConfiguration::gamma)};
  kind.check = [](const ScheduleConfiguration& schedule, const CheckRequest& request) {
    if (schedule.step_size == 0) request.complain("step_size", "is needed for schedule.kind = \"step\"");
  };
  kind.rate = [](const ScheduleConfiguration& schedule, const ScheduledStep& step) {
    const std::int64_t cuts = schedule.step_size > 0 ? step.since / schedule.step_size : 0;
    return step.lr * std::pow(schedule.gamma, static_cast<double>(cuts));
  };
  return kind;
}

}  // namespace onebatch
