// The result documents of design section 4 as JSON text: stable field names that other programs read.
#pragma once

#include "trainer/base/plan.hpp"
#include "trainer/base/profile.hpp"
#include "trainer/base/results.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace onebatch {

std::string to_json(const ClusterProfile& profile);
std::string to_json(const Plan& plan);
std::string to_json(const EpochPlan& plan);  // the full plan's document with the short batch's under "last_batch"
std::string to_json(const VerifyReport& report);
std::string to_json(const TrainResult& result);
std::string to_json(const EvaluationResult& result);
/// One line, without a newline: a line of metrics.jsonl. `time`: seconds since 1970.
std::string to_json_line(const StepRecord& record, double time);

/// Where a run was when it was validated.
struct ValidationMoment {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::int64_t consumed_samples = 0;
  std::optional<double> lr = {};
  double time = 0.0;  // seconds since 1970
};
/// One line of validation.jsonl.
std::string validation_json_line(const ValidationMoment& moment, const EvaluationResult& result);
/// One line of samples.jsonl: {"step", "indices"}.
std::string samples_json_line(std::int64_t step, const std::vector<std::int64_t>& indices);

/// A profile, measured or written by hand: needs `max_micro_batch` and `step_seconds` only. Throws UserError that names
/// the rank, the field and what to write instead; `origin` (a file's name) is put in front.
ClusterProfile parse_profile(std::string_view json, std::string_view origin);
EpochPlan parse_epoch_plan(std::string_view json, std::string_view origin);

}  // namespace onebatch
