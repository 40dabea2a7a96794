// A number of the validation that a run watches: the best so far, and for how long there was no better one.
#pragma once

#include "trainer/base/configuration.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace onebatch {

/// As a checkpoint has it.
struct WatchState {
  bool operator==(const WatchState&) const = default;

  std::string metric;  // whose; empty: nothing was watched
  bool greater_is_better = false;
  std::optional<double> best;  // none: no validation had a number there
  std::int64_t best_step = 0;
  std::int64_t without = 0;  // validations in a row since, that had no better one
};

/// Of a run that has validated nothing yet.
WatchState begin_watching(const WatchedMetric& watched);

/// What a run that goes on makes of it: itself where it is of the same metric, and of the same way to be better.
WatchState go_on_watching(const WatchState& saved, const WatchedMetric& watched);

/// The value of the validation after `step`. Whether it is the best so far: the first that is finite, or one that is
/// better by more than `min_delta`.
bool watch(WatchState& state, double value, std::int64_t step, double min_delta = 0.0);

}  // namespace onebatch
