// The plan in lock-step: all ranks do their k-th micro-batch together, since BatchNorm's statistics are taken over all
// of them.
#pragma once

#include "trainer/plan/planner.hpp"
#include "trainer/plan/straggler.hpp"

namespace onebatch {

/// With G(c) = min max_r T_r(b_r) over sum b_r = c, the least K (G of its micro-steps) + K * lock_step_seconds over the
/// number K of micro-steps, whose sizes differ by one at most: the statistics of a tiny last one would be bad. A rank
/// without samples in a micro-step computes nothing. Micro-steps of fewer samples than
/// options.preferred_micro_batch are made only where no others can be: Note [Micro-batches for statistics]. Every
/// rank's micro_batches add up to K, with sizes of 0 where it has none. Empty where no split exists.
std::vector<std::vector<MicroBatchRun>> find_lock_steps(std::int64_t global_batch_size,
                                                        const std::vector<RankCost>& ranks,
                                                        const PlannerOptions& options);

/// What each rank takes in each micro-step of such a plan, in the order of execution.
std::vector<std::vector<VaryingTime>> lock_step_times(const Plan& plan, const std::vector<RankCost>& ranks);

}  // namespace onebatch
