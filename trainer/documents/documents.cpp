#include "trainer/documents/documents.hpp"

#include "trainer/base/error.hpp"

#include <nlohmann/json.hpp>

#include <cmath>

namespace onebatch {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no word for what is not finite.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json number(const std::optional<double>& value) {
  return value ? number(*value) : Json(nullptr);
}

// Text that is not UTF-8 (a host's name, a path) must not break a document.
std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

const char* word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass: return "pass";
    case Verdict::fail: return "fail";
    case Verdict::cannot_judge: return "cannot_judge";
  }
  return "fail";
}

Json trial_json(const Trial& trial) {
  return {{"size", trial.size},
          {"fits", trial.fits},
          {"out_of_memory", trial.out_of_memory},
          {"peak_bytes", trial.peak_bytes},
          {"seconds", number(trial.seconds)}};
}

Json memory_json(const MemoryUse& memory) {
  return {{"parameters_bytes", memory.parameters_bytes},
          {"buffers_bytes", memory.buffers_bytes},
          {"gradients_bytes", memory.gradients_bytes},
          {"optimizer_bytes", memory.optimizer_bytes},
          {"communication_bytes", memory.communication_bytes},
          {"workspace_bytes", memory.workspace_bytes},
          {"activation_bytes_per_sample", number(memory.activation_bytes_per_sample)},
          {"kept_bytes_per_sample", number(memory.kept_bytes_per_sample)}};
}

Json profile_json(const RankProfile& rank) {
  Json times = Json::array();
  for (const auto& [size, seconds] : rank.step_seconds) times.push_back({size, number(seconds)});
  Json trials = Json::array();
  for (const Trial& trial : rank.trials) trials.push_back(trial_json(trial));
  return {{"rank", rank.rank},
          {"host", rank.host},
          {"device", rank.device},
          {"memory_limit_bytes", rank.memory_limit_bytes},
          {"min_micro_batch", rank.min_micro_batch},
          {"largest_micro_batch", rank.largest_micro_batch},
          {"max_micro_batch", rank.max_micro_batch},
          {"peak_bytes", rank.peak_bytes},
          {"resident_bytes", rank.resident_bytes},
          {"memory", memory_json(rank.memory)},
          {"room_bytes", rank.room_bytes},
          {"kept_in_host", rank.kept_in_host},
          {"from_cache", rank.from_cache},
          {"recomputes", rank.recomputes},
          {"optimizer_seconds", number(rank.optimizer_seconds)},
          {"reduce_seconds", number(rank.reduce_seconds)},
          {"exchange_seconds", number(rank.exchange_seconds)},
          {"lock_step", rank.lock_step},
          {"local_statistics", rank.local_statistics},
          {"times_spread", number(rank.times_spread)},
          {"jitter", number(rank.jitter)},
          {"step_seconds", times},
          {"trials", trials}};
}

Json plan_json(const Plan& plan) {
  Json ranks = Json::array();
  for (const RankPlan& rank : plan.ranks) {
    Json micro_batches = Json::array();
    for (const auto& [size, count] : rank.micro_batches) micro_batches.push_back({size, count});
    Json seconds = Json::array();
    for (const double of_one : rank.micro_batch_seconds) seconds.push_back(number(of_one));
    ranks.push_back({{"rank", rank.rank},
                     {"device", rank.device},
                     {"samples", rank.samples},
                     {"micro_batches", micro_batches},
                     {"micro_batch_seconds", seconds},
                     {"predicted_seconds", number(rank.predicted_seconds)},
                     {"idle_fraction", number(rank.idle_fraction)},
                     {"kept_in_host", rank.kept_in_host},
                     {"recomputes", rank.recomputes}});
  }
  return {{"global_batch_size", plan.global_batch_size},
          {"predicted_step_seconds", number(plan.predicted_step_seconds)},
          {"equal_split_seconds", number(plan.equal_split_seconds)},
          {"memory_split_seconds", number(plan.memory_split_seconds)},
          {"ranks", ranks},
          {"notes", plan.notes}};
}

}  // namespace

std::string to_json(const ClusterProfile& profile) {
  Json ranks = Json::array();
  for (const RankProfile& rank : profile.ranks) ranks.push_back(profile_json(rank));
  return dump({{"ranks", ranks}}, 2);
}

std::string to_json(const Plan& plan) {
  return dump(plan_json(plan), 2);
}

std::string to_json(const EpochPlan& plan) {
  Json json = plan_json(plan.full);
  json["last_batch"] = plan.last ? plan_json(*plan.last) : Json(nullptr);
  return dump(json, 2);
}

std::string to_json(const VerifyReport& report) {
  Json parameters = Json::array();
  for (const ParameterDifference& p : report.parameters) {
    parameters.push_back({{"name", p.name},
                          {"relative_l2", number(p.relative_l2)},
                          {"max_abs", number(p.max_abs)},
                          {"reference_relative_l2", number(p.reference_relative_l2)}});
  }
  Json differences = Json::array();
  for (const ConfigurationDifference& d : report.differences)
    differences.push_back({{"cause", d.cause}, {"relative_l2", number(d.relative_l2)}});
  Json compared = Json::array();
  for (const Comparison& c : report.compared)
    compared.push_back({{"what", c.what},
                        {"where", c.where},
                        {"relative_l2", number(c.relative_l2)},
                        {"tolerance", number(c.tolerance)},
                        {"verdict", word_of(c.verdict)}});
  Json float64 = nullptr;
  if (report.float64)
    float64 = {{"pass", report.float64->pass},
               {"relative_l2", number(report.float64->relative_l2)},
               {"tolerance", number(report.float64->tolerance)}};
  return dump({{"pass", report.pass},
               {"verdict", word_of(report.verdict)},
               {"cause", report.cause.empty() ? Json(nullptr) : Json(report.cause)},
               {"reason", report.reason.empty() ? Json(nullptr) : Json(report.reason)},
               {"reference", report.reference},
               {"relative_l2", number(report.relative_l2)},
               {"max_abs", number(report.max_abs)},
               {"tolerance", number(report.tolerance)},
               {"reference_relative_l2", number(report.reference_relative_l2)},
               {"parameters", parameters},
               {"batch_norm", report.batch_norm},
               {"precision", report.precision},
               {"compared", compared},
               {"float64", float64},
               {"differences", differences},
               {"notes", report.notes}},
              2);
}

namespace {

// The confusion matrix, a row for each true class, is there where it was asked for.
Json metrics_json(const EvaluationResult& result) {
  Json metrics = Json::object();
  for (const MetricValue& metric : result.metrics) metrics[metric.name] = number(metric.value);
  if (!result.confusion_matrix.empty()) metrics["confusion_matrix"] = result.confusion_matrix;
  return metrics;
}

}  // namespace

std::string to_json(const TrainResult& result) {
  const auto& validated = result.validation;
  return dump(
      {{"steps", result.steps},
       {"consumed_samples", result.consumed_samples},
       {"train_loss", number(result.train_loss)},
       {"validation_loss", validated ? number(validated->loss) : Json(nullptr)},
       {"validation_accuracy", validated ? number(validated->accuracy) : Json(nullptr)},
       {"validation_metrics", validated ? metrics_json(*validated) : Json(nullptr)},
       {"samples_per_second", number(result.samples_per_second)},
       {"step_seconds", {{"median", number(result.step_seconds.median)}, {"p95", number(result.step_seconds.p95)}}},
       {"predicted_step_seconds", number(result.predicted_step_seconds)},
       {"data_wait_seconds", number(result.data_wait_seconds)},
       {"reduced_bytes_per_step", result.reduced_bytes_per_step},
       {"checkpoints_saved", result.checkpoints_saved},
       {"checkpoint_waits", result.checkpoint_waits},
       {"checkpoint_seconds", number(result.checkpoint_seconds)},
       {"mended_replicas", result.mended_replicas},
       {"out_of_memory_events", result.out_of_memory_events},
       {"replans", result.replans},
       {"stopped_early", result.stopped_early},
       {"run_dir", result.run_dir}},
      2);
}

std::string to_json(const EvaluationResult& result) {
  return dump({{"validation_loss", number(result.loss)},
               {"validation_accuracy", number(result.accuracy)},
               {"validation_metrics", metrics_json(result)},
               {"samples", result.samples}},
              2);
}

namespace {

Json numbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(number(value));
  return list;
}

}  // namespace

std::string to_json_line(const StepRecord& record, double time) {
  Json line = {{"step", record.step},
               {"epoch", record.epoch},
               {"consumed_samples", record.consumed_samples},
               {"time", number(time)},
               {"loss", number(record.loss)},
               {"lr", number(record.lr)},
               {"grad_norm", number(record.grad_norm)},
               {"skipped", record.skipped},
               {"step_seconds", number(record.step_seconds)},
               {"compute_seconds", numbers(record.compute_seconds)},
               {"data_wait_seconds", numbers(record.data_wait_seconds)},
               {"exposed_comm_seconds", number(record.exposed_comm_seconds)},
               {"samples_per_second", number(record.samples_per_second)},
               {"memory_peak_bytes", record.memory_peak_bytes},
               {"reduced_bytes", record.reduced_bytes},
               {"plan", record.plan}};
  if (record.loss_scale) line["loss_scale"] = number(*record.loss_scale);
  return dump(line, -1);
}

std::string validation_json_line(const ValidationMoment& moment, const EvaluationResult& result) {
  Json line = {{"step", moment.step},         {"epoch", moment.epoch},   {"consumed_samples", moment.consumed_samples},
               {"time", number(moment.time)}, {"lr", number(moment.lr)}, {"samples", result.samples},
               {"loss", number(result.loss)}};
  if (result.accuracy) line["accuracy"] = number(*result.accuracy);
  line.update(metrics_json(result));
  return dump(line, -1);
}

std::string samples_json_line(std::int64_t step, const std::vector<std::int64_t>& indices) {
  return dump({{"step", step}, {"indices", indices}}, -1);
}

}  // namespace onebatch
