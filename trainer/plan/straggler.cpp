#include "trainer/plan/straggler.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace onebatch {
namespace {

constexpr double k_upper_quartile = 0.6744897501960817;  // of a normal distribution, in standard deviations

// The part of a rank's steps that takes longer; for times from the median on, so a half at most.
double part_beyond(const VaryingTime& rank, double seconds) {
  return 0.5 * std::erfc(k_upper_quartile * std::numbers::sqrt2 / 2.0 * (seconds / rank.seconds - 1.0) / rank.jitter);
}

// Above 0 where fewer than half of the steps have all ranks done by then. Not far from a line in seconds.
double lateness(const std::vector<VaryingTime>& ranks, double seconds) {
  constexpr double k_small = 1e-250;  // a thousand halves are less than a double holds
  double log_all_done = 0.0;
  double all_done = 1.0;
  for (const auto& rank : ranks) {
    all_done *= 1.0 - part_beyond(rank, seconds);
    if (all_done > k_small) continue;
    log_all_done += std::log2(all_done);
    all_done = 1.0;
  }
  return std::max(-64.0, std::log2(-(log_all_done + std::log2(all_done))));
}

// By then all ranks are done in half of the steps and more: what lies beyond z of a normal distribution is below
// exp(-z^2 / 2) / 2.
double late_enough(const std::vector<VaryingTime>& ranks) {
  const double part = -std::expm1(-std::numbers::ln2 / static_cast<double>(ranks.size()));
  const double z = std::sqrt(-2.0 * std::log(2.0 * part));
  double seconds = 0.0;
  for (const auto& rank : ranks) seconds = std::max(seconds, rank.seconds * (1.0 + z / k_upper_quartile * rank.jitter));
  return seconds;
}

}  // namespace

double median_of_slowest(const std::vector<VaryingTime>& ranks) {
  constexpr double k_never = 7.05;  // jitters after its median a rank is late in one of a million steps
  constexpr double k_close = 1e-2;  // jitters: far less
  constexpr int k_most_tries = 20;
  double slowest = 0.0;
  for (const auto& rank : ranks) slowest = std::max(slowest, rank.seconds);
  std::vector<VaryingTime> late;
  for (const auto& rank : ranks) {
    if (rank.jitter > 0.0 && rank.seconds * (1.0 + k_never * rank.jitter) > slowest) late.push_back(rank);
  }
  if (late.empty()) return slowest;
  double lateness_of_least = lateness(late, slowest);
  if (lateness_of_least < k_close) return slowest;
  double least = slowest;
  double most = late_enough(late);
  double lateness_of_most = lateness(late, most);
  // By false position. The line alone may come closer from one side only: an end that stays counts half the next time
  // (Illinois).
  double seconds = most;
  double found = lateness_of_most;
  bool was_least = false;
  for (int i = 0; i < k_most_tries && std::abs(found) > k_close; ++i) {
    seconds = least + lateness_of_least / (lateness_of_least - lateness_of_most) * (most - least);
    found = lateness(late, seconds);
    const bool is_least = found > 0.0;
    (is_least ? least : most) = seconds;
    (is_least ? lateness_of_least : lateness_of_most) = found;
    if (i > 0 && is_least == was_least) (is_least ? lateness_of_most : lateness_of_least) /= 2.0;
    was_least = is_least;
  }
  return seconds;
}

}  // namespace onebatch
