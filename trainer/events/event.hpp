// What happens in a run, as plain data. Each is sent once, to everyone who listens: see event_stream.hpp.
#pragma once

#include "trainer/base/error.hpp"
#include "trainer/base/plan.hpp"
#include "trainer/base/profile.hpp"
#include "trainer/base/results.hpp"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace onebatch {

/// Now: seconds since 1970 (UTC), to the millisecond.
[[nodiscard]] inline double unix_seconds() {
  const std::chrono::duration<double> since = std::chrono::system_clock::now().time_since_epoch();
  return std::round(since.count() * 1e3) / 1e3;
}

namespace event {

/// A line, or some, for whoever watches.
struct Info {
  std::string line;
};

struct Warning {
  std::string line;
};

/// Something was asked for and something else was done (Note [Nothing falls back in silence]).
struct Fallback {
  std::string asked;  // may be empty: what was done says all
  std::string done;
};

struct ProfileMeasured {
  ClusterProfile profile;
};

/// The plan from here on.
struct PlanMade {
  EpochPlan plan;
};

struct TrainingBegins {
  std::int64_t first_step = 0;  // so many are done already
  std::int64_t last_step = 0;
  // Of a full batch or, where there are fewer samples, of all of them; none where nothing is left to do.
  std::optional<double> predicted_step_seconds = {};
  // From an older checkpoint of its own run, with nothing left to do: what is on record of later steps stands.
  bool looks_back = false;
};

struct StepDone {
  StepRecord record;
  std::vector<std::int64_t> samples;  // the indices of its global batch, in order
  double time = unix_seconds();
};

/// A rank ran out of memory in a step, which was done in smaller parts or is done again.
struct OutOfMemory {
  std::int64_t step = 0;
  int rank = 0;
  std::int64_t micro_batch_size = 0;  // that did not fit
};

/// The plan has changed in mid-run. Its PlanMade has come before.
struct Replanned {
  enum class Cause { out_of_memory, drift };
  Cause cause = Cause::drift;
  std::int64_t step = 0;                // the last one under the plan before
  std::int64_t replans = 0;             // in this start, this one counted
  double predicted_step_seconds = 0.0;  // as in TrainingBegins, from here on
};

struct Validated {
  std::int64_t epoch = 0;
  EvaluationResult result;
  std::int64_t step = 0;  // so many are done
  std::int64_t consumed_samples = 0;
  std::optional<double> lr = {};  // of the last step; none before the first of this start
  bool within_epoch = false;      // which has begun and not ended
  double time = unix_seconds();
};

struct CheckpointSaved {
  std::int64_t step = 0;
  std::string path;
  std::chrono::steady_clock::time_point begin;  // of writing
  std::chrono::steady_clock::time_point end;
};

/// Training has come to its end, or was stopped by a signal.
struct Ended {
  TrainResult result;
};

/// An error ends the session on the rank that is told, which is about to throw it.
struct Failed {
  ExitCode code = ExitCode::failed;
  std::string reason;
};

}  // namespace event

using Event = std::variant<event::Info, event::Warning, event::Fallback, event::ProfileMeasured, event::PlanMade,
                           event::TrainingBegins, event::StepDone, event::OutOfMemory, event::Replanned,
                           event::Validated, event::CheckpointSaved, event::Ended, event::Failed>;

}  // namespace onebatch
