#include "trainer/plan/straggler.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace onebatch {
namespace {

// The part of a rank's steps that takes longer; for times from the median on.
double part_beyond(const VaryingTime& rank, double seconds) {
  constexpr double k_upper_quartile = 0.6744897501960817;  // of a normal distribution, in standard deviations
  return 0.5 * std::erfc(k_upper_quartile * std::numbers::sqrt2 / 2.0 * (seconds / rank.seconds - 1.0) / rank.jitter);
}

// Above 0 where fewer than half of the steps have all ranks done by then. Not far from a line in seconds.
double lateness(const std::vector<VaryingTime>& ranks, double seconds) {
  double all_done = 1.0;
  for (const auto& rank : ranks) all_done *= 1.0 - part_beyond(rank, seconds);
  return std::max(-64.0, std::log2(-std::log2(all_done)));
}

}  // namespace

double median_of_slowest(const std::vector<VaryingTime>& ranks) {
  constexpr double k_never = 7.05;      // jitters after its median a rank is late in one of a million steps
  constexpr double k_close = 1e-2;      // jitters: far less
  constexpr double k_first_step = 3.0;  // nine of ten times the median is within
  constexpr int k_most_tries = 20;
  double least = 0.0;
  for (const auto& rank : ranks) least = std::max(least, rank.seconds);
  std::vector<VaryingTime> late;
  for (const auto& rank : ranks) {
    if (rank.jitter > 0.0 && rank.seconds * (1.0 + k_never * rank.jitter) > least) late.push_back(rank);
  }
  if (late.empty()) return least;
  double lateness_of_least = lateness(late, least);
  if (lateness_of_least < k_close) return least;
  double most = least;
  double lateness_of_most = lateness_of_least;
  for (double beyond = k_first_step * std::ranges::max(late, {}, &VaryingTime::jitter).jitter; lateness_of_most > 0.0; beyond *= 2.0) {
    most = least * (1.0 + beyond);
    lateness_of_most = lateness(late, most);
  }
  // By false position. The line alone may come closer from one side only: an end that stays counts half the next time (Illinois).
  double seconds = most;
  bool was_least = false;
  for (int i = 0; i < k_most_tries; ++i) {
    seconds = least + lateness_of_least / (lateness_of_least - lateness_of_most) * (most - least);
    const double found = lateness(late, seconds);
    if (std::abs(found) < k_close) break;
    const bool is_least = found > 0.0;
    (is_least ? least : most) = seconds;
    (is_least ? lateness_of_least : lateness_of_most) = found;
    if (i > 0 && is_least == was_least) (is_least ? lateness_of_most : lateness_of_least) /= 2.0;
    was_least = is_least;
  }
  return seconds;
}

}  // namespace onebatch
