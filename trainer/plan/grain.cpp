#include "trainer/plan/grain.hpp"

#include <algorithm>
#include <cmath>
#include <queue>

namespace onebatch {
namespace {

// All calls take a rank the same time, so handing each to the rank that would be done with it first is optimal.
GrainSplit with_last(std::int64_t calls, std::int64_t grain, std::int64_t remainder, const std::vector<RankCost>& ranks,
                     std::size_t last_rank) {
  GrainSplit split{std::vector<std::int64_t>(ranks.size(), 0), last_rank, 0.0};
  for (const RankCost& rank : ranks) split.slowest_seconds = std::max(split.slowest_seconds, rank.constant_seconds);
  using Finish = std::pair<double, std::size_t>;  // the time at which a rank would have done one more
  std::priority_queue<Finish, std::vector<Finish>, std::greater<>> next;
  for (std::size_t r = 0; r <= last_rank; ++r) {
    const bool takes_rest = remainder > 0 && r == last_rank;
    const double before = ranks[r].constant_seconds + (takes_rest ? ranks[r].table.seconds(remainder) : 0.0);
    if (takes_rest) split.slowest_seconds = std::max(split.slowest_seconds, before);
    if (ranks[r].largest_micro_batch(grain + (takes_rest ? remainder : 0)) >= grain)
      next.emplace(before + ranks[r].table.seconds(grain), r);
  }
  for (std::int64_t i = 0; i < calls; ++i) {
    if (next.empty()) return {};
    const auto [seconds, rank] = next.top();
    next.pop();
    ++split.calls[rank];
    split.slowest_seconds = std::max(split.slowest_seconds, seconds);
    const std::int64_t share = grain * (split.calls[rank] + 1) + (rank == last_rank ? remainder : 0);
    if (ranks[rank].largest_micro_batch(share) >= grain) next.emplace(seconds + ranks[rank].table.seconds(grain), rank);
  }
  return split;
}

}  // namespace

GrainSplit split_by_grain(std::int64_t global_batch_size, std::int64_t grain, const std::vector<RankCost>& ranks) {
  const std::int64_t remainder = global_batch_size % grain;
  const std::int64_t calls = global_batch_size / grain;
  if (remainder == 0) return with_last(calls, grain, 0, ranks, ranks.size() - 1);
  GrainSplit best;
  for (std::size_t last = 0; last < ranks.size(); ++last) {
    if (ranks[last].largest_micro_batch(remainder) < remainder) continue;
    GrainSplit split = with_last(calls, grain, remainder, ranks, last);
    if (!split.calls.empty() && (best.calls.empty() || split.slowest_seconds < best.slowest_seconds))
      best = std::move(split);
  }
  return best;
}

}  // namespace onebatch
