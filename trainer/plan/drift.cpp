#include "trainer/plan/drift.hpp"

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr std::size_t k_most_steps = 4096;
constexpr double k_most_correction = 1.25;
constexpr std::size_t k_most_compared = 256;  // of a window's steps: more say little more
constexpr std::int64_t k_looks = 3;           // while a window fills
constexpr std::int64_t k_recent_steps = 200;

}  // namespace

void DriftWatch::begin(std::vector<double> predicted_seconds) {
  predicted_ = std::move(predicted_seconds);
  steps_.clear();
  warm_ = false;
  watches_ = true;
}

void DriftWatch::stop() {
  watches_ = false;
}

void DriftWatch::add(const std::vector<double>& compute_seconds) {
  if (!warm_) {
    warm_ = true;
    return;
  }
  Step step{{}, *std::max_element(compute_seconds.begin(), compute_seconds.end())};
  for (std::size_t r = 0; r < predicted_.size(); ++r)
    step.ratios.push_back(predicted_[r] > 0.0 ? compute_seconds[r] / predicted_[r] : 1.0);
  steps_.push_back(std::move(step));
  if (steps_.size() > k_most_steps) steps_.pop_front();
}

std::vector<LastingDrift> DriftWatch::detect(std::int64_t step) {
  std::vector<LastingDrift> found;
  if (!watches_) return found;
  const auto recent =
      std::count_if(answers_.begin(), answers_.end(), [&](auto when) { return when > step - k_recent_steps; });
  const auto add = [&](const DriftWindow& window, const Drift& seen) {
    found.push_back({window, seen, static_cast<int>(recent)});
  };
  if (settling_ && fills(k_settling_window)) {
    settling_ = false;
    const auto seen = drift(k_settling_window);
    // What is off by more is no flaw of the tables: if it lasts, the windows below see it.
    if (seen && is_correction(*seen)) add(k_settling_window, *seen);
  }
  for (const DriftWindow& window : k_drift_windows) {
    if (step % (static_cast<std::int64_t>(window.steps) / k_looks) != 0) continue;
    if (const auto seen = drift(window)) add(window, *seen);
  }
  return found;
}

void DriftWatch::answered(std::int64_t step, Answer answer) {
  answers_.push_back(step);
  settling_ = answer == Answer::tables_measured;
}

std::optional<std::size_t> DriftWatch::steps_in(const DriftWindow& window) const {
  std::size_t count = 0;
  double seconds = 0.0;
  const auto full = [&] { return count >= window.steps && (seconds >= window.seconds || count == k_most_steps); };
  for (; count < steps_.size() && !full(); ++count) seconds += steps_[steps_.size() - 1 - count].seconds;
  return full() ? std::optional(count) : std::nullopt;
}

bool DriftWatch::fills(const DriftWindow& window) const {
  return steps_in(window).has_value();
}

std::optional<Drift> DriftWatch::drift(const DriftWindow& window) const {
  const auto filled = steps_in(window);
  if (!filled) return std::nullopt;
  const std::size_t stride = 1 + *filled / k_most_compared;
  Drift drift;
  bool any = false;
  for (std::size_t r = 0; r < predicted_.size(); ++r) {
    std::vector<double> seen;
    for (std::size_t i = steps_.size() - *filled; i < steps_.size(); i += stride) seen.push_back(steps_[i].ratios[r]);
    std::sort(seen.begin(), seen.end());
    const std::size_t count = seen.size();
    const auto others = static_cast<std::size_t>((1.0 - window.agreeing) * static_cast<double>(count));
    const double low = seen[others];
    const double high = seen[count - 1 - others];
    drift.typical.push_back(seen[count / 2]);
    drift.least.push_back(low > 1.0 ? low : (high < 1.0 ? high : 1.0));
    any = any || std::abs(drift.least.back() - 1.0) > window.noticeable;
  }
  return any ? std::optional<Drift>(drift) : std::nullopt;
}

std::vector<double> rank_seconds_under(const Plan& plan, const std::vector<RankCost>& ranks) {
  std::vector<double> all;
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    double seconds = plan.ranks[r].samples > 0 ? ranks[r].constant_seconds : 0.0;
    for (const auto& [size, count] : plan.ranks[r].micro_batches)
      seconds += static_cast<double>(count) * ranks[r].table.seconds(size);
    all.push_back(seconds);
  }
  return all;
}

double seconds_under(const Plan& plan, const std::vector<RankCost>& ranks) {
  const auto all = rank_seconds_under(plan, ranks);
  return *std::max_element(all.begin(), all.end());
}

CostTable scaled(const CostTable& table, double factor) {
  std::vector<TimedSize> points = table.points();
  for (TimedSize& point : points) point.seconds *= factor;
  return CostTable(points);
}

bool is_correction(const Drift& drift) {
  return std::all_of(drift.typical.begin(), drift.typical.end(),
                     [](double ratio) { return std::max(ratio, 1.0 / ratio) < k_most_correction; });
}

bool worth_a_new_plan(double seconds_now, double seconds_then, int recent_replans, const DriftWindow& window) {
  const double wanted = std::min(0.5, window.least_gain * std::pow(2.0, std::max(0, recent_replans - 1)));
  return seconds_now > 0.0 && 1.0 - seconds_then / seconds_now > wanted;
}

bool promises_a_new_plan(const LastingDrift& lasting, const Plan& plan, std::vector<RankCost> ranks,
                         const PlannerOptions& options) {
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].table = scaled(ranks[r].table, lasting.drift.least[r]);
  const Plan then = plan_global_batch(plan.global_batch_size, ranks, options);
  return worth_a_new_plan(seconds_under(plan, ranks), seconds_under(then, ranks), lasting.recent, lasting.window);
}

}  // namespace onebatch
