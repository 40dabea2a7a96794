#include "trainer/base/watched_metric.hpp"

#include "trainer/base/metrics.hpp"

#include <cmath>

namespace onebatch {

WatchState begin_watching(const WatchedMetric& watched) {
  WatchState state;
  state.metric = watched.metric;
  state.greater_is_better =
      watched.better == BetterIs::automatic ? greater_is_better(watched.metric) : watched.better == BetterIs::greatest;
  return state;
}

WatchState go_on_watching(const WatchState& saved, const WatchedMetric& watched) {
  const WatchState anew = begin_watching(watched);
  return saved.metric == anew.metric && saved.greater_is_better == anew.greater_is_better ? saved : anew;
}

bool watch(WatchState& state, double value, std::int64_t step, double min_delta) {
  const double gain = !state.best ? HUGE_VAL : (state.greater_is_better ? value - *state.best : *state.best - value);
  if (!std::isfinite(value) || !(gain > min_delta)) {
    ++state.without;
    return false;
  }
  state.best = value;
  state.best_step = step;
  state.without = 0;
  return true;
}

}  // namespace onebatch
