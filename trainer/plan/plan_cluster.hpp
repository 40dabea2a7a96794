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

/// Of the run's global batch, as planned; infinite where there is no plan.
double planned_step_seconds(const ClusterProfile& profile, const Configuration& configuration);

/// Of a cluster whose ranks keep activations, and the same where all compute them again: those whose larger
/// micro-batches make a step of the run shorter, together by more than times swing; else none. Ranks that did so in the
/// first, since nothing fits otherwise, are none of them.
std::vector<bool> ranks_that_should_recompute(const ClusterProfile& keeping, const ClusterProfile& recomputing,
                                              const Configuration& configuration);

}  // namespace onebatch
