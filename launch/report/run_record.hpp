// A run as its folder tells it, whether it is complete, in progress or has failed.
#pragma once

#include "trainer/base/plan.hpp"
#include "trainer/base/profile.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace onebatch::launch::report {

/// A line of config.toml.
struct ConfigEntry {
  std::string key;     // "optimizer.lr"
  std::string value;   // as TOML; "not set"
  std::string origin;  // "default", "command line", "x.toml:12"
};

/// Columns of metrics.jsonl, a value for each step; not a number where a line has none.
struct StepColumns {
  std::vector<double> step;
  std::vector<double> consumed_samples;
  std::vector<double> loss;
  std::vector<double> lr;
  std::vector<double> grad_norm;
  std::vector<double> loss_scale;
  std::vector<double> samples_per_second;
  std::vector<double> step_seconds;
  std::vector<std::int64_t> plan;
};

/// Where the time of the steps went in which a rank took part, in all. The parts add up to the steps' seconds, but for
/// steps that were measured to take less than their busiest rank.
struct RankTimes {
  double compute_seconds = 0.0;
  double data_wait_seconds = 0.0;
  double exposed_comm_seconds = 0.0;
  double idle_seconds = 0.0;  // waiting for the rank that had most to do in that step
  double rest_seconds = 0.0;  // the optimizer, and what belongs to none of these
  std::int64_t steps = 0;
  std::int64_t memory_peak_bytes = 0;  // the largest of all steps; 0 = not measured

  [[nodiscard]] double seconds() const {
    return compute_seconds + data_wait_seconds + exposed_comm_seconds + idle_seconds + rest_seconds;
  }
};

struct Metrics {
  StepColumns columns;
  std::vector<RankTimes> ranks;   // in the steps of the last start: earlier ones may have had other devices
  std::int64_t not_of_ranks = 0;  // the last step before those; 0: all are of the last start
  std::int64_t last_epoch = 0;
  std::vector<std::int64_t> skipped_steps;  // in which nothing was updated
  std::int64_t torn_lines = 0;              // that are no line of metrics

  [[nodiscard]] std::size_t num_steps() const { return columns.step.size(); }
};

/// A number of validation.jsonl over the run.
struct ValidationColumn {
  std::string name = {};
  std::vector<double> step = {};
  std::vector<double> consumed_samples = {};  // where the lines or the steps say it
  std::vector<double> value = {};
};

struct Validations {
  std::vector<ValidationColumn> columns;                  // in the order of the file's fields
  std::vector<std::vector<std::int64_t>> last_confusion;  // [true class][predicted class]; may be empty
  std::int64_t count = 0;
  std::int64_t torn_lines = 0;
};

/// A line of events.jsonl, or something else of the folder that says what happened.
struct RunEvent {
  std::optional<double> time = {};  // seconds since 1970
  std::string kind = {};            // "warning", "checkpoint", ...: trainer/events/event_json.hpp
  std::optional<std::int64_t> step = {};
  std::string text = {};
};

/// Which prediction held for the steps after `after_step`.
struct PlanSpan {
  std::int64_t after_step = 0;
  double predicted_step_seconds = 0.0;
};

/// What a start has said of itself.
struct Start {
  std::string command = {};
  std::string version = {};  // of onebatch
  std::string host = {};     // rank 0's
  std::int64_t ranks = 0;
  std::int64_t first_step = 0;  // so many were done already; the start's before, where it has not come so far
};

struct RunRecord {
  std::filesystem::path folder;
  std::string name;
  std::vector<ConfigEntry> configuration;
  std::optional<ClusterProfile> profile;
  std::optional<EpochPlan> plan;
  Metrics metrics;
  Validations validations;
  std::vector<RunEvent> events;
  std::vector<PlanSpan> spans;
  std::vector<Start> starts;
  std::map<std::string, double> result;  // numbers of result.json; "step_seconds.median"; empty: there is none
  std::string held_by;                   // the process that works on it now; empty: none
  std::vector<std::string> unread;       // files that are there and cannot be read, with why

  [[nodiscard]] bool complete() const { return !result.empty(); }
  /// The text of a key; empty where the configuration does not say.
  [[nodiscard]] std::string setting(const std::string& key) const;
};

/// Throws UserError where the folder is no run's. What single files lack or hold that cannot be read is in the record.
RunRecord read_run(const std::filesystem::path& folder);

}  // namespace onebatch::launch::report
