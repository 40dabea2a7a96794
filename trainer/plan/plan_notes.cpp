#include "trainer/plan/plan_notes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace onebatch {

void note_idle_ranks(Plan& plan, const std::vector<RankCost>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (plan.ranks[r].samples > 0) continue;
    const bool fits = ranks[r].max_micro_batch >= ranks[r].min_micro_batch;
    plan.notes.push_back(
        fmt::format("rank {} ({}) gets no samples: {}", r, ranks[r].device,
                    fits ? "any share would make the others wait for it" : "no micro-batch fits on it"));
  }
}

std::optional<std::int64_t> least_statistics(const Plan& plan, Statistics of) {
  std::vector<std::int64_t> samples;
  for (const RankPlan& rank : plan.ranks) {
    std::size_t step = 0;
    for (const auto& [size, count] : rank.micro_batches) {
      if (of == Statistics::each_micro_batch) samples.push_back(size);
      for (std::int64_t i = 0; of == Statistics::lock_step && i < count; ++i, ++step) {
        if (step == samples.size()) samples.push_back(0);
        samples[step] += size;
      }
    }
  }
  return samples.empty() ? std::nullopt : std::optional(std::ranges::min(samples));
}

void note_small_statistics(Plan& plan, const std::vector<RankCost>& ranks, const PlannerOptions& options) {
  const auto least = least_statistics(plan, options.lock_step ? Statistics::lock_step : Statistics::each_micro_batch);
  if (!least || *least >= options.preferred_micro_batch) return;
  const bool fixed = options.gradient_accumulation_steps || std::ranges::any_of(ranks, [](const RankCost& rank) {
                       return rank.fixed_micro_batch.has_value();
                     });
  // What the probe tries ends at the batch, whatever memory is left then.
  const std::int64_t enough = std::min(2 * options.preferred_micro_batch - 1, plan.global_batch_size);
  const bool room = options.lock_step ||
                    std::ranges::all_of(ranks, [&](const RankCost& rank) { return rank.max_micro_batch >= enough; });
  const std::string why = fixed ? "[batch] fixes micro-batches or their number"
                                : (room ? fmt::format("a batch of {} has no more for each of {} rank(s)",
                                                      plan.global_batch_size, ranks.size())
                                        : "memory does not hold more");
  plan.notes.push_back(fmt::format(
      "BatchNorm takes statistics of as few as {} samples, fewer than batch_norm.min_micro_batch_size = {}: {}", *least,
      options.preferred_micro_batch, why));
}

}  // namespace onebatch
