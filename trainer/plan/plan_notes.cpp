#include "trainer/plan/plan_notes.hpp"

#include <algorithm>

namespace onebatch {

void note_idle_ranks(Plan& plan, const std::vector<RankCost>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (plan.ranks[r].samples > 0) continue;
    const std::string who = "rank " + std::to_string(r) + " (" + ranks[r].device + ") gets no samples: ";
    plan.notes.push_back(who + (ranks[r].max_micro_batch < ranks[r].min_micro_batch ? "no micro-batch fits on it"
                                                                                    : "any share would make the others wait for it"));
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
  const bool fixed = options.gradient_accumulation_steps ||
                     std::ranges::any_of(ranks, [](const RankCost& rank) { return rank.fixed_micro_batch.has_value(); });
  const bool room = options.lock_step || std::ranges::all_of(ranks, [&](const RankCost& rank) {
                      return rank.max_micro_batch >= 2 * options.preferred_micro_batch - 1;
                    });
  const std::string why = fixed ? "[batch] fixes micro-batches or their number"
                                : (room ? "a batch of " + std::to_string(plan.global_batch_size) + " has no more for each of " +
                                              std::to_string(ranks.size()) + " rank(s)"
                                        : "memory does not hold more");
  plan.notes.push_back("BatchNorm takes statistics of as few as " + std::to_string(*least) +
                       " samples, fewer than batch_norm.min_micro_batch_size = " + std::to_string(options.preferred_micro_batch) + ": " +
                       why);
}

}  // namespace onebatch
