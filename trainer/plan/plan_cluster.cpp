#include "trainer/plan/plan_cluster.hpp"

#include "trainer/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr double k_shorter = 0.95;  // of a step's time: what is nearer is within what times swing by

}  // namespace

std::vector<RankCost> rank_costs(const ClusterProfile& profile, const BatchConfiguration& batch) {
  const auto& fixed = batch.micro_batch_size;
  if (fixed.size() > 1 && fixed.size() != profile.ranks.size())
    throw UserError(fmt::format(
        "batch.micro_batch_size lists {} sizes, but there are {} ranks: write one per rank, one for all, or \"auto\"",
        fixed.size(), profile.ranks.size()));
  std::vector<RankCost> costs;
  for (std::size_t i = 0; i < profile.ranks.size(); ++i) {
    const RankProfile& rank = profile.ranks[i];
    RankCost cost{.device = rank.device,
                  .table = CostTable(rank.step_seconds),
                  .min_micro_batch = rank.min_micro_batch,
                  .max_micro_batch = rank.max_micro_batch,
                  .fixed_micro_batch = std::nullopt,
                  .constant_seconds = rank.lock_step ? 0.0 : rank.exchange_seconds};
    cost.jitter = rank.jitter;
    cost.kept_in_host = rank.kept_in_host;
    cost.recomputes = rank.recomputes;
    if (!fixed.empty()) cost.fixed_micro_batch = fixed.size() == 1 ? fixed.front() : fixed[i];
    if (rank.memory.kept_bytes_per_sample > 0.0 && !rank.kept_in_host)
      cost.share_memory = {static_cast<double>(rank.room_bytes), rank.memory.kept_bytes_per_sample,
                           rank.memory.activation_bytes_per_sample};
    costs.push_back(std::move(cost));
  }
  return costs;
}

PlannerOptions planner_options(const ClusterProfile& profile, const Configuration& configuration) {
  const BatchConfiguration& batch = configuration.batch;
  PlannerOptions options;
  if (configuration.run.deterministic == Determinism::bitwise) options.grain = batch.micro_batch_size.at(0);
  options.gradient_accumulation_steps = batch.gradient_accumulation_steps;
  double reduce_seconds = 0.0;
  double optimizer_seconds = 0.0;
  for (const RankProfile& rank : profile.ranks) {
    reduce_seconds = std::max(reduce_seconds, rank.reduce_seconds);
    optimizer_seconds = std::max(optimizer_seconds, rank.optimizer_seconds);
    options.lock_step = options.lock_step || rank.lock_step;
    if (rank.lock_step || rank.local_statistics)
      options.preferred_micro_batch = configuration.batch_norm.min_micro_batch_size;
    if (rank.lock_step) options.lock_step_seconds = std::max(options.lock_step_seconds, rank.exchange_seconds);
  }
  options.step_overhead_seconds = reduce_seconds + optimizer_seconds;
  return options;
}

double planned_step_seconds(const ClusterProfile& profile, const Configuration& configuration) {
  try {
    return plan_global_batch(configuration.batch.global_batch_size, rank_costs(profile, configuration.batch),
                             planner_options(profile, configuration))
        .predicted_step_seconds;
  } catch (const DoesNotFitError&) {
    return HUGE_VAL;
  } catch (const UserError&) {  // a fixed number of micro-batches that memory has no room for
    return HUGE_VAL;
  }
}

std::vector<bool> ranks_that_should_recompute(const ClusterProfile& keeping, const ClusterProfile& recomputing,
                                              const Configuration& configuration) {
  const std::size_t ranks = keeping.ranks.size();
  const auto seconds = [&](const std::vector<bool>& chosen) {
    ClusterProfile mixed = keeping;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (chosen[r]) mixed.ranks[r] = recomputing.ranks[r];
    }
    return planned_step_seconds(mixed, configuration);
  };
  const std::vector<bool> none(ranks);
  std::vector<bool> all(ranks);
  for (std::size_t r = 0; r < ranks; ++r) all[r] = !keeping.ranks[r].recomputes;
  const double before = seconds(none);
  std::vector<bool> best = none;
  double least = before;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (!all[r]) continue;
    best[r] = true;
    const double with = seconds(best);
    best[r] = with < least;
    least = std::min(least, with);
  }
  // Those that gain nothing by themselves join the others for a gain that is more than what times swing by.
  if (const double of_all = seconds(all); of_all < k_shorter * least) {
    best = all;
    least = of_all;
  }
  return least < k_shorter * before ? best : none;
}

}  // namespace onebatch
