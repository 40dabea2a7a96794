#include "trainer/plan/plan_check.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace onebatch {
namespace {

std::int64_t count_of(const RankPlan& rank) {
  std::int64_t count = 0;
  for (const MicroBatchRun& run : rank.micro_batches) count += run.count;
  return count;
}

std::string of_rank(std::size_t rank, const std::string& what) {
  return fmt::format("gives rank {} {}", rank, what);
}

// What the user has fixed.
std::string against_settings(const RankPlan& rank, std::size_t r, const BatchConfiguration& batch) {
  if (batch.micro_batch_size.empty()) return {};
  const std::int64_t fixed =
      batch.micro_batch_size.size() == 1 ? batch.micro_batch_size.front() : batch.micro_batch_size.at(r);
  for (const MicroBatchRun& run : rank.micro_batches) {
    if (run.size > fixed)
      return of_rank(r, fmt::format("micro-batches of {}, but batch.micro_batch_size is {}", run.size, fixed));
  }
  return {};
}

// Micro-steps that all ranks do together; without them there is none without samples.
std::string against_lock_step(const Plan& plan, bool lock_step) {
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    const RankPlan& rank = plan.ranks[r];
    if (lock_step && count_of(rank) != count_of(plan.ranks.front()))
      return of_rank(r, "another number of micro-batches than rank 0, but synchronised BatchNorm does them together");
    const bool empty = std::ranges::any_of(rank.micro_batches, [](const MicroBatchRun& run) { return run.size == 0; });
    if (!lock_step && empty)
      return of_rank(r, "micro-batches without samples, as only synchronised BatchNorm has them");
  }
  return {};
}

// Calls of one size along the global batch, and one smaller at its end.
std::string against_grain(const Plan& plan, std::int64_t grain) {
  std::int64_t done = 0;
  for (std::size_t r = 0; grain > 0 && r < plan.ranks.size(); ++r) {
    for (const auto& [size, count] : plan.ranks[r].micro_batches) {
      const bool rest = size == plan.global_batch_size % grain && count == 1 && done + size == plan.global_batch_size;
      if (size != grain && !rest)
        return of_rank(
            r, fmt::format("micro-batches of {}, but run.deterministic = \"bitwise\" has calls of {}", size, grain));
      done += size * count;
    }
  }
  return {};
}

std::string against(const Plan& plan, const PlanGround& ground) {
  if (plan.ranks.size() != static_cast<std::size_t>(ground.world_size))
    return fmt::format("is for {} rank(s), but {} were started", plan.ranks.size(), ground.world_size);
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    if (plan.ranks[r].rank != static_cast<int>(r))
      return fmt::format("lists rank {} in the place of rank {}", plan.ranks[r].rank, r);
    if (std::string wrong = against_settings(plan.ranks[r], r, ground.batch); !wrong.empty()) return wrong;
  }
  if (std::string wrong = against_lock_step(plan, ground.lock_step); !wrong.empty()) return wrong;
  return against_grain(plan, ground.grain);
}

std::string against_steps(const Plan& plan, const BatchConfiguration& batch) {
  for (std::size_t r = 0; batch.gradient_accumulation_steps && r < plan.ranks.size(); ++r) {
    if (plan.ranks[r].samples > 0 && count_of(plan.ranks[r]) != *batch.gradient_accumulation_steps)
      return of_rank(r, fmt::format("{} micro-batches, but batch.gradient_accumulation_steps is {}",
                                    count_of(plan.ranks[r]), *batch.gradient_accumulation_steps));
  }
  return {};
}

}  // namespace

std::string why_not_followed(const EpochPlan& plan, const PlanGround& ground) {
  const BatchConfiguration& batch = ground.batch;
  if (plan.full.global_batch_size != batch.global_batch_size)
    return fmt::format("is for a global batch of {}, but batch.global_batch_size is {}", plan.full.global_batch_size,
                       batch.global_batch_size);
  if (std::string wrong = against(plan.full, ground); !wrong.empty()) return wrong;
  if (std::string wrong = against_steps(plan.full, batch); !wrong.empty()) return wrong;
  const std::int64_t left = batch.last_batch == LastBatch::drop ? 0 : ground.dataset_size % batch.global_batch_size;
  if (!plan.last || left == 0) return {};
  if (plan.last->global_batch_size != left)
    return fmt::format("has a last batch of {} samples, but this run's has {}: its data is another",
                       plan.last->global_batch_size, left);
  const std::string wrong = against(*plan.last, ground);
  return wrong.empty() ? "" : "for the last batch " + wrong;
}

}  // namespace onebatch
