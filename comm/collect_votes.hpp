// The votes of all ranks that are left, of this node and of others.
#pragma once

#include "comm/survivor_board.hpp"
#include "comm/watchdog.hpp"

#include <chrono>

namespace onebatch::comm {

/// What has been voted until every rank that can be expected to has, at most until `patience` is over. Where there are
/// other nodes their questions are answered all that time. Uses no MPI and no other thread.
[[nodiscard]] std::vector<Vote> collect_votes(const SurvivorBoard& board, const LossCall& call,
                                              std::chrono::milliseconds patience);

}  // namespace onebatch::comm
