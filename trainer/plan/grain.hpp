// The split of a global batch into kernel calls of one size, as a sum with the same bits for every plan needs: see Note
// [Bitwise].
#pragma once

#include "trainer/plan/planner.hpp"

namespace onebatch {

/// How many calls of `grain` samples each rank makes, and which makes the one of what is left (the last that computes
/// anything, since calls are counted along the global batch).
struct GrainSplit {
  std::vector<std::int64_t> calls;  // per rank
  std::size_t last_rank = 0;        // takes the remainder, where there is one
  double slowest_seconds = 0.0;
};

/// The exact minimum of max_r (c_r + calls_r T_r(grain) [+ T_r(remainder)]) over all ranks, those without calls too. No
/// calls where no rank can make one.
GrainSplit split_by_grain(std::int64_t global_batch_size, std::int64_t grain, const std::vector<RankCost>& ranks);

}  // namespace onebatch
