// A smaller batch split as a plan splits its own.
#pragma once

#include "trainer/plan/planner.hpp"

namespace onebatch {

/// Ranks' shares in the plan's proportion, each in as many micro-batches as the plan has (of alike sizes), or in as
/// many as its samples allow: for a batch of at most the plan's, outside of lock-step and of fixed grains. None where a
/// rank's share would be smaller than its least micro-batch. Nothing in it is a prediction but the micro-batches'
/// times.
std::optional<Plan> in_pattern_of(const Plan& plan, std::int64_t batch, const std::vector<RankCost>& ranks);

}  // namespace onebatch
