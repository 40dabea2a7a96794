// What a program is told while the library works: progress, results, and every change of plan. launch/ shows it on the terminal.
#pragma once

#include "trainer/base/plan.hpp"
#include "trainer/base/profile.hpp"
#include "trainer/base/results.hpp"

#include <string_view>

namespace onebatch {

/// Told of everything worth showing. Only rank 0's is called. Every function does nothing unless overridden.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void info(std::string_view /*line*/) {}
  virtual void warn(std::string_view /*line*/) {}
  /// Something was asked for and something else was done (Note [Nothing falls back in silence]). Throws under --strict.
  virtual void fallback(std::string_view /*asked*/, std::string_view /*done*/) {}
  virtual void profile_measured(const ClusterProfile&) {}
  virtual void plan_made(const EpochPlan&) {}
  virtual void training_begins(std::int64_t /*first_step*/, std::int64_t /*last_step*/) {}
  virtual void step_done(const StepRecord&) {}
  virtual void validated(std::int64_t /*epoch*/, const EvaluationResult&) {}
  virtual void checkpoint_saved(std::int64_t /*step*/, std::string_view /*path*/) {}
};

}  // namespace onebatch
