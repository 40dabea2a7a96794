#include "trainer/plan/plan_notes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace onebatch {

namespace {

bool can_compute(const RankCost& rank) {
  return rank.max_micro_batch >= rank.min_micro_batch;
}

}  // namespace

void note_idle_ranks(Plan& plan, const std::vector<RankCost>& ranks, const PlannerOptions& options) {
  const char* why = "any share would make the others wait for it";
  if (options.gradient_accumulation_steps || options.grain > 0) why = "[batch] fixes micro-batches or their number";
  if (plan.global_batch_size < std::ranges::count_if(ranks, can_compute))
    why = "the batch has fewer samples than there are ranks";
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (plan.ranks[r].samples > 0) continue;
    plan.notes.push_back(fmt::format("rank {} ({}) gets no samples: {}", r, ranks[r].device,
                                     can_compute(ranks[r]) ? why : "no micro-batch fits on it"));
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
  std::int64_t together = 0;
  for (const RankCost& rank : ranks) together += rank.max_micro_batch;
  const bool room =
      options.lock_step
          ? together >= std::min(options.preferred_micro_batch, plan.global_batch_size)
          : std::ranges::all_of(ranks, [&](const RankCost& rank) { return rank.max_micro_batch >= enough; });
  const std::string why = fixed ? "[batch] fixes micro-batches or their number"
                                : (room ? fmt::format("a batch of {} has no more for each of {} rank(s)",
                                                      plan.global_batch_size, ranks.size())
                                        : "memory does not hold more");
  plan.notes.push_back(fmt::format(
      "BatchNorm takes statistics of as few as {} samples, fewer than batch_norm.min_micro_batch_size = {}: {}", *least,
      options.preferred_micro_batch, why));
}

}  // namespace onebatch
