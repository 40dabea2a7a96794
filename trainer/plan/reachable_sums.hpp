// Shares where not every number of samples can be reached: least micro-batches above one, fixed numbers of accumulation
// steps.
#pragma once

#include "trainer/plan/share_search.hpp"

namespace onebatch {

/// As find_shares, for any tables. O(ranks * batch) for each time that is tried.
std::vector<std::int64_t> find_reachable_shares(std::int64_t global_batch_size, TableSet& tables);

}  // namespace onebatch
