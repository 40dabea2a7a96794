// The planner: the split of a global batch over unlike ranks that the slowest rank finishes soonest. See Note [Memory
// is a limit, time is the objective].
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/base/cost_table.hpp"
#include "trainer/base/plan.hpp"
#include "trainer/plan/share_memory.hpp"

#include <algorithm>

namespace onebatch {

struct RankCost {
  std::string device;
  CostTable table;
  std::int64_t min_micro_batch = 1;
  std::int64_t max_micro_batch = 1;               // 0 = this rank can compute nothing
  std::optional<std::int64_t> fixed_micro_batch;  // every micro-batch of this size, but for one smaller remainder
  double constant_seconds = 0.0;                  // per optimizer step, whatever the share
  bool kept_in_host = false;                      // what is kept of the share
  bool recomputes = false;                        // activations are computed again, which the table has in it
  std::optional<ShareMemory> share_memory = std::nullopt;  // limits micro-batches further, the larger the share is
  double jitter = 0.0;                                     // of its times, as in VaryingTime: for the prediction only
  std::int64_t preferred_micro_batch = 1;                  // see PlannerOptions: set by the planner

  /// The largest micro-batch that fits beside a share of `samples`.
  [[nodiscard]] std::int64_t largest_micro_batch(std::int64_t samples) const {
    return share_memory ? std::min(max_micro_batch, share_memory->largest_micro_batch(samples)) : max_micro_batch;
  }
};

struct PlannerOptions {
  std::optional<std::int64_t> gradient_accumulation_steps;  // ranks with work do exactly this many micro-batches
  double few_sizes_tolerance = 0.005;  // how much slower a plan of fewer distinct sizes may be; 0 = never
  // Reduction that is not hidden and the slowest optimizer, for the prediction only.
  double step_overhead_seconds = 0.0;
  // Reduction that begins in the last micro-batches' backward; the rest of it counts.
  double overlapped_reduce_seconds = 0.0;
  // Above 0: micro-batches of that size, counted along the global batch; one smaller one at its end.
  std::int64_t grain = 0;
  bool lock_step = false;          // all ranks do their k-th micro-batch together, as synchronised BatchNorm needs
  double lock_step_seconds = 0.0;  // what coming together costs in each of them
  // Note [Micro-batches for statistics]. BatchNorm takes its statistics from each micro-batch alone (in lock-step: from
  // that of all ranks together), so small ones beside large ones spoil the result. None has fewer samples than this, or
  // than an even share of the batch where that is less; only where a rank's memory allows no such split of its share
  // its micro-batches are as large as the least of them can be. Of the plans that keep to this the quickest is taken,
  // of equally quick ones the one whose sizes are most alike. 1 = no preference.
  std::int64_t preferred_micro_batch = 1;
};

/// The exact minimum of max_r (c_r + F_r(n_r)) with sum n_r = global_batch_size (within few_sizes_tolerance where that
/// is above 0). In lock-step that of find_lock_steps: there a rank's micro-batches may be of size 0, where it
/// waits for the others. Throws UserError where no split exists, and DoesNotFitError where there is no memory for the
/// shares, and says what to change.
Plan plan_global_batch(std::int64_t global_batch_size, const std::vector<RankCost>& ranks,
                       const PlannerOptions& options = {});

/// The same number of samples on every rank, each split as well as can be; none where that does not fit. To compare
/// with.
std::optional<Plan> plan_equal_split(std::int64_t global_batch_size, const std::vector<RankCost>& ranks,
                                     const PlannerOptions& options = {});

/// Also the plan of the last short batch of `dataset_size` samples (none when it divides, or when it is dropped).
EpochPlan plan_epoch(std::int64_t global_batch_size, std::int64_t dataset_size, LastBatch last_batch,
                     const std::vector<RankCost>& ranks, const PlannerOptions& options = {});

}  // namespace onebatch
