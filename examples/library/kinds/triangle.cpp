// A schedule of one's own: the rate rises and falls in lines. schedule.kind = "triangle", schedule.period = 10.
#include <onebatch/kinds.hpp>

#include <cmath>

namespace {

using namespace onebatch;

const Option<ScheduleConfiguration, std::int64_t> k_period{"period", 10};

ScheduleKind triangle() {
  ScheduleKind kind;
  kind.name = "triangle";
  kind.keys = {
      integer_key({"period", Changes::result, "triangle: steps from one top to the next"}, 2, k_any, k_period)};
  kind.rate = [](const ScheduleConfiguration& schedule, const ScheduledStep& step) {
    const auto period = static_cast<double>(k_period(schedule));
    return step.lr * std::abs(1.0 - 2.0 * std::fmod(static_cast<double>(step.since), period) / period);
  };
  return kind;
}

[[maybe_unused]] const bool k_registered = (register_kind(triangle()), true);

}  // namespace
