#include "trainer/plan/plan_pattern.hpp"

namespace onebatch {

std::optional<Plan> in_pattern_of(const Plan& plan, std::int64_t batch, const std::vector<RankCost>& ranks) {
  Plan found;
  found.global_batch_size = batch;
  std::int64_t running = 0;
  std::int64_t given = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    RankPlan rank = plan.ranks[r];
    std::int64_t count = 0;
    for (const MicroBatchRun& run : rank.micro_batches) count += run.count;
    running += rank.samples;
    const auto upto = static_cast<std::int64_t>(static_cast<__int128>(batch) * running / plan.global_batch_size);
    rank.samples = upto - given;
    given = upto;
    count = std::min(count, rank.samples / ranks[r].min_micro_batch);
    if (rank.samples > 0 && count == 0) return std::nullopt;
    rank.micro_batches.clear();
    rank.micro_batch_seconds.clear();
    const std::int64_t size = count > 0 ? rank.samples / count : 0;
    const std::int64_t larger = count > 0 ? rank.samples % count : 0;
    for (const auto& run : {MicroBatchRun{size, count - larger}, MicroBatchRun{size + 1, larger}}) {
      if (run.count == 0) continue;
      rank.micro_batches.push_back(run);
      rank.micro_batch_seconds.push_back(ranks[r].table.seconds(run.size));
    }
    found.ranks.push_back(std::move(rank));
  }
  return found;
}

}  // namespace onebatch
