// A kind of learning-rate schedule: what it makes of the steps after the warm-up, which is the same for all.
#pragma once

#include "trainer/settings/kinds.hpp"

namespace onebatch {

/// A step of the run, seen from the end of the warm-up.
struct ScheduledStep {
  double lr;           // at the top
  std::int64_t since;  // steps since the warm-up
  double progress;     // from 0 at the top to 1 at the last step
};

struct ScheduleKind : Kind<ScheduleConfiguration> {
  std::function<double(const ScheduleConfiguration&, const ScheduledStep&)> rate;

  /// Those of trainer/optim/sources.cmake.
  static std::vector<ScheduleKind> built_in();
};

}  // namespace onebatch
