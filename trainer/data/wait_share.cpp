#include "trainer/data/wait_share.hpp"

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

// What a hand-over between threads costs is some 20 us, and of a small model's step that is more than reading is.
constexpr double k_worth_seconds = 2e-4;  // of a micro-batch
constexpr double k_worth_share = 0.02;    // of a step

}  // namespace

void WaitShare::add(double step_seconds, const std::vector<double>& data_wait_seconds) {
  ++steps;
  seconds += step_seconds;
  waits.resize(data_wait_seconds.size(), 0.0);
  for (std::size_t rank = 0; rank < waits.size(); ++rank) waits[rank] += data_wait_seconds[rank];
}

std::int64_t workers_needed(const WaitShare& seen, std::size_t rank, std::int64_t micro_batches, std::int64_t most) {
  const double share = seen.of(rank);
  const double of_micro_batch =
      seen.waits[rank] / static_cast<double>(seen.steps * std::max<std::int64_t>(micro_batches, 1));
  if (share < k_worth_share || of_micro_batch < k_worth_seconds) return 0;
  const double kept_up_by = std::ceil(share / std::max(1.0 - share, 1e-3) - 1e-6);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(kept_up_by), 1, most);
}

}  // namespace onebatch
