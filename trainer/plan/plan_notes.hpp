// What a user must know of a plan, in words.
#pragma once

#include "trainer/plan/planner.hpp"

namespace onebatch {

/// Ranks without samples, and why.
void note_idle_ranks(Plan& plan, const std::vector<RankCost>& ranks, const PlannerOptions& options);

/// Where micro-batches are smaller than is preferred, and why. See Note [Micro-batches for statistics].
void note_small_statistics(Plan& plan, const std::vector<RankCost>& ranks, const PlannerOptions& options);

/// What BatchNorm takes its statistics of.
enum class Statistics { each_micro_batch, lock_step };

/// Of the fewest samples; in lock-step those of all ranks together. None where nothing is computed.
std::optional<std::int64_t> least_statistics(const Plan& plan, Statistics of);

}  // namespace onebatch
