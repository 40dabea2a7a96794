// Whether ranks have become slower or faster than their tables say, for good: a hot card, a neighbour that came or went.
#pragma once

#include "trainer/plan/planner.hpp"

#include <array>
#include <deque>

namespace onebatch {

/// How long something has to last, and what a new plan then has to win.
struct DriftWindow {
  std::size_t steps;  // at least
  double seconds;     // of computing, at least
  double noticeable;  // a rank that is off by less is not
  double least_gain;  // of the step's time
};

/// What changes much is answered soon; what changes little, or a table that was never quite right, when it is certain.
inline constexpr std::array<DriftWindow, 2> k_drift_windows = {{{12, 0.75, 0.1, 0.15}, {48, 5.0, 0.01, 0.03}}};

/// Each rank's time beside the table's, over the last steps. Says the same on every rank that is told the same.
class DriftWatch {
 public:
  struct Drift {
    std::vector<double> typical;  // per rank: the median of measured over predicted
    std::vector<double> least;    // the same nearer to 1: three steps in four went beyond it. 1 where they did not agree on a side
  };

  /// Forgets what was seen: from here on the ranks follow a plan that predicts these times, per rank; 0 for one without work.
  void begin(std::vector<double> predicted_seconds);
  void add(const std::vector<double>& compute_seconds);
  /// Over the last steps that fill the window. None before it is full, and where no rank is noticeably off.
  [[nodiscard]] std::optional<Drift> drift(const DriftWindow& window) const;

 private:
  struct Step {
    std::vector<double> ratios;  // per rank
    double seconds;              // of the slowest
  };
  std::vector<double> predicted_;
  std::deque<Step> steps_;
  bool warm_ = false;  // the first step under a plan meets new sizes
};

/// What the plan's micro-batches take with these costs, per rank; 0 for a rank without work.
std::vector<double> rank_seconds_under(const Plan& plan, const std::vector<RankCost>& ranks);
/// The slowest rank's.
double seconds_under(const Plan& plan, const std::vector<RankCost>& ranks);

/// The table with every time multiplied.
CostTable scaled(const CostTable& table, double factor);

/// Whether a new plan is worth it after `recent_replans` for the same reason not long ago: from the second on each doubles what has to be
/// won, so that plans do not oscillate where no table is true.
bool worth_a_new_plan(double seconds_now, double seconds_then, int recent_replans, const DriftWindow& window);

}  // namespace onebatch
