#include "trainer/data/wait_share.hpp"

#include <fmt/format.h>

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

std::string started_workers_text(const WaitShare& seen, std::span<const RankWorkers> ranks, std::int64_t step) {
  std::size_t count = 0;
  std::size_t last = 0;
  double share = 0.0;
  std::int64_t workers = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].started == 0) continue;
    ++count;
    last = rank;
    share = std::max(share, seen.of(rank));
    workers = std::max(workers, ranks[rank].workers);
  }
  if (count == 0) return {};
  const std::string until = fmt::format("{:.0f} % of the steps until {}", 100.0 * share, step);
  const std::string read = fmt::format("{} data worker{}", workers, workers == 1 ? "" : "s");
  if (count > 1)
    return fmt::format("reading took up to {} on {} of {} ranks: up to {} of each read ahead from here on", until,
                       count, ranks.size(), read);
  return fmt::format("reading took {}{}: {} read{} ahead from here on", until,
                     ranks.size() > 1 ? fmt::format(" on rank {}", last) : "", read, workers == 1 ? "s" : "");
}

}  // namespace onebatch
