// The rate stays at the top.
#include "trainer/optim/schedule_kind.hpp"

namespace onebatch {

ScheduleKind constant_schedule_kind() {
  ScheduleKind kind;
  kind.name = "constant";
  kind.rate = [](const ScheduleConfiguration& /*schedule*/, const ScheduledStep& step) { return step.lr; };
  return kind;
}

}  // namespace onebatch
