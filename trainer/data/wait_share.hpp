// How much of their time ranks have waited for samples, and what would help.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace onebatch {

/// What ranks have waited for samples, of the time that some steps took.
struct WaitShare {
  std::int64_t steps = 0;
  double seconds = 0.0;
  std::vector<double> waits;  // per rank

  void add(double step_seconds, const std::vector<double>& data_wait_seconds);
  [[nodiscard]] double of(std::size_t rank) const { return seconds > 0.0 ? waits[rank] / seconds : 0.0; }
};

/// How many threads keep up, of those that the node's cores allow: where a step waits for `share` of its time, the rest
/// of it is what reading has to be done in. 0: none is worth its hand-over. `micro_batches`: of a step.
[[nodiscard]] std::int64_t workers_needed(const WaitShare& seen, std::size_t rank, std::int64_t micro_batches,
                                          std::int64_t most);

/// Of a rank.
struct RankWorkers {
  std::int64_t workers = 0;
  std::int64_t started = 0;  // of them, just now
  std::int64_t most = 0;     // that its cores allow
};

/// What is said of those that were started, which were needed by what was `seen` until a step; empty where none was.
[[nodiscard]] std::string started_workers_text(const WaitShare& seen, std::span<const RankWorkers> ranks,
                                               std::int64_t step);

}  // namespace onebatch
