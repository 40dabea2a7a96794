// From a cluster's profile and the user's batch to the planner's costs.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/base/profile.hpp"
#include "trainer/plan/planner.hpp"

namespace onebatch {

/// A cost per rank of the profile. Throws UserError where batch.micro_batch_size lists another number of ranks.
std::vector<RankCost> rank_costs(const ClusterProfile& profile, const BatchConfiguration& batch);

/// What a step takes beside the micro-batches: the slowest rank's reduction and optimizer.
PlannerOptions planner_options(const ClusterProfile& profile, const Configuration& configuration);

}  // namespace onebatch
