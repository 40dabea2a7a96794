// Whether a plan that was made before, or written by hand, is one of this run.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/base/plan.hpp"

namespace onebatch {

/// What a plan must agree with.
struct PlanGround {
  BatchConfiguration batch;
  std::int64_t dataset_size = 0;
  int world_size = 1;
  std::int64_t grain = 0;  // as in PlannerOptions
  bool lock_step = false;  // likewise
};

/// What is wrong with it, to follow the plan's name: "is for 2 ranks, but 1 was started"; empty: it can be followed.
/// The plan's shares are known to add up.
std::string why_not_followed(const EpochPlan& plan, const PlanGround& ground);

}  // namespace onebatch
