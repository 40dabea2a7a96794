// Whether ranks have become slower or faster than their tables say, for good: a hot card, a neighbour that came or
// went.
#pragma once

#include "trainer/plan/planner.hpp"

#include <array>
#include <deque>

namespace onebatch {

/// How long something has to last, and what a new plan then has to win.
struct DriftWindow {
  std::size_t steps;  // at least
  double seconds;     // of computing, at least
  double agreeing;    // this part of the steps has to go beyond
  double noticeable;  // a rank that is off by less is not
  double least_gain;  // of the step's time
};

/// The less a new plan wins, the longer the drift has to last: on shared machines speeds come and go by some percent
/// within seconds.
inline constexpr std::array<DriftWindow, 3> k_drift_windows = {
    {{16, 0.6, 0.75, 0.1, 0.25}, {96, 15.0, 0.625, 0.01, 0.06}, {96, 30.0, 0.55, 0.01, 0.03}}};
/// Tables that were measured between two steps are corrected once by the steps that follow: those are what counts, and
/// there are more.
inline constexpr DriftWindow k_settling_window = {32, 1.5, 0.5, 0.01, 0.01};

/// How far ranks are from their tables.
struct Drift {
  std::vector<double> typical;  // per rank: the median of measured over predicted
  // The same nearer to 1: as many steps as must agree went beyond it. 1 where they did not agree on a side.
  std::vector<double> least;
};

/// A drift that has lasted: whether another plan would be better is to be asked.
struct LastingDrift {
  DriftWindow window;
  Drift drift;
  int recent = 0;  // answers not long ago
};

/// Each rank's time beside the table's, over the last steps. Says the same on every rank that is told the same.
class DriftWatch {
 public:
  /// Forgets what was seen: from here on the ranks follow a plan that predicts these times, per rank; 0 for one without
  /// work.
  void begin(std::vector<double> predicted_seconds);
  /// Nothing is expected until the next begin().
  void stop();
  [[nodiscard]] bool watches() const { return watches_; }
  void add(const std::vector<double>& compute_seconds);
  /// Those that a step shows, the most urgent first.
  std::vector<LastingDrift> detect(std::int64_t step);
  /// What was done about one.
  enum class Answer { tables_scaled, tables_measured };
  void answered(std::int64_t step, Answer answer);
  [[nodiscard]] bool fills(const DriftWindow& window) const;
  /// Over the last steps that fill the window. None before it is full, and where no rank is noticeably off.
  [[nodiscard]] std::optional<Drift> drift(const DriftWindow& window) const;

 private:
  struct Step {
    std::vector<double> ratios;  // per rank
    double seconds;              // of the slowest
  };
  [[nodiscard]] std::optional<std::size_t> steps_in(const DriftWindow& window) const;

  std::vector<double> predicted_;
  std::deque<Step> steps_;
  std::vector<std::int64_t> answers_;  // steps after which there was one
  bool watches_ = false;
  bool warm_ = false;      // the first step under a plan meets new sizes
  bool settling_ = false;  // tables were measured anew, and no steps have confirmed them yet
};

/// What the plan's micro-batches take with these costs, per rank; 0 for a rank without work.
std::vector<double> rank_seconds_under(const Plan& plan, const std::vector<RankCost>& ranks);
/// The slowest rank's.
double seconds_under(const Plan& plan, const std::vector<RankCost>& ranks);

/// The table with every time multiplied.
CostTable scaled(const CostTable& table, double factor);

/// Whether a rank is off by so little that its table, scaled, holds near the sizes in use: a factor seen at one size is
/// not that of another, and after more than a quarter a plan goes to sizes where nothing was seen.
bool is_correction(const Drift& drift);

/// Whether a new plan is worth it after `recent_replans` for the same reason not long ago: from the second on each
/// doubles what has to be won, so that plans do not oscillate where no table is true.
bool worth_a_new_plan(double seconds_now, double seconds_then, int recent_replans, const DriftWindow& window);

/// Whether that much can be won where the ranks' costs have changed by the least that the drift shows.
bool promises_a_new_plan(const LastingDrift& lasting, const Plan& plan, std::vector<RankCost> ranks,
                         const PlannerOptions& options = {});

}  // namespace onebatch
