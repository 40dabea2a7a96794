// From repeated times of micro-batches to a cost table: pure.
#pragma once

#include "trainer/base/cost_table.hpp"

#include <map>

namespace onebatch {

/// Seconds of each size, in the order in which they were taken.
using TimesOfSizes = std::map<std::int64_t, std::vector<double>>;

/// What a rank's own work takes, in seconds.
struct Times {
  TimesOfSizes micro_steps;
  std::vector<double> updates;

  void add(const Times& others);
};

/// The median of each.
std::vector<TimedSize> typical_times(const TimesOfSizes& times);

/// How far the times of one size lie apart, as a part of their median: the half in the middle, of the worst of the
/// sizes that matter (the larger ones, of which plans are made); or how much less a larger size took than a smaller
/// one, where that is more.
double spread_of(const TimesOfSizes& times);

/// By how much a quarter of the times of the sizes that matter exceeds the median of its size or more, as a part of it;
/// 0 where no size has three times.
double jitter_of(const TimesOfSizes& times);

/// Above it something else has used the machine meanwhile.
inline constexpr double k_spoiled_spread = 0.15;

/// Micro-batches that are over sooner vary on the calmest machine.
inline constexpr double k_quick_seconds = 0.005;

}  // namespace onebatch
