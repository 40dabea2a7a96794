#include "launch/report_texts.hpp"

#include "trainer/probe/memory_use.hpp"
#include "trainer/probe/timing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace onebatch::launch {
namespace {

constexpr std::int64_t k_no_limit = INT64_MAX;

std::string mebibytes(std::int64_t bytes) {
  return bytes == k_no_limit || bytes == 0 ? "none" : amount(static_cast<double>(bytes));
}

// Of the micro-batches that were tried; the search has more to do than them.
double trial_seconds(const RankProfile& rank) {
  double sum = 0.0;
  for (const Trial& trial : rank.trials) sum += 2.0 * trial.seconds;
  return sum;
}

}  // namespace

std::string profile_table(const ClusterProfile& profile) {
  std::string text = "probe of every rank's device\n";
  text += fmt::format("{:>4}  {:<36} {:>10}  {:>15}  {:>12}  {:>11}  {:>9}  {:>6}  {:>13}  {:>9}\n", "rank", "device",
                      "limit", "min micro-batch", "max measured", "max planned", "used", "trials", "out of memory",
                      "in trials");
  for (const RankProfile& rank : profile.ranks) {
    const auto failures =
        std::count_if(rank.trials.begin(), rank.trials.end(), [](const Trial& trial) { return trial.out_of_memory; });
    const bool limited = rank.memory_limit_bytes > 0 && rank.memory_limit_bytes != k_no_limit;
    const std::string used = limited ? fmt::format("{:.1f} %", 100.0 * static_cast<double>(rank.peak_bytes) /
                                                                   static_cast<double>(rank.memory_limit_bytes))
                                     : mebibytes(rank.peak_bytes);
    text += fmt::format("{:>4}  {:<36} {:>10}  {:>15}  {:>12}  {:>11}  {:>9}  {:>6}  {:>13}  {:>7.2f} s\n", rank.rank,
                        rank.device, mebibytes(rank.memory_limit_bytes), rank.min_micro_batch, rank.largest_micro_batch,
                        rank.max_micro_batch, used, rank.trials.size(), failures, trial_seconds(rank));
  }
  for (const RankProfile& rank : profile.ranks) {
    text += fmt::format(
        "rank {}: {}{}\n", rank.rank, memory_text(rank.memory),
        rank.from_cache ? "; from the cache, confirmed by one trial (probe.cache = false measures anew)" : "");
    if (rank.times_spread > k_spoiled_spread && rank.step_seconds.back().seconds >= k_quick_seconds)
      text += fmt::format("rank {}: its times vary by {:.0f} %: something else uses this machine\n", rank.rank,
                          100.0 * rank.times_spread);
  }
  return text;
}

namespace {

const char* word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass: return "";
    case Verdict::fail: return "differs";
    case Verdict::cannot_judge: return "cannot be judged";
  }
  return "";
}

std::string verdict_line(const VerifyReport& report) {
  if (report.verdict == Verdict::pass)
    return fmt::format("PASS: this is the gradient of the single large batch (tolerance {:.3g})\n", report.tolerance);
  if (report.verdict == Verdict::fail)
    return fmt::format("FAIL: this is not the gradient of the single large batch (tolerance {:.3g})\n",
                       report.tolerance);
  if (!report.float64) return fmt::format("CANNOT JUDGE in {}\n", report.precision);
  return fmt::format("CANNOT JUDGE in {}; in float64 the same micro-batches are {:.2g} off: {}\n", report.precision,
                     report.float64->relative_l2, report.float64->pass ? "PASS" : "FAIL");
}

}  // namespace

std::string verify_text(const VerifyReport& report) {
  std::string text = fmt::format("gradient against {}\n", report.reference);
  text += fmt::format(
      "relative L2 {:.3g}, largest difference {:.3g} ({}, BatchNorm {}); one single batch in {} is off by {:.3g}\n",
      report.relative_l2, report.max_abs, report.precision, report.batch_norm, report.precision,
      report.reference_relative_l2);
  auto worst = report.parameters;
  std::sort(worst.begin(), worst.end(), [](const auto& a, const auto& b) { return a.relative_l2 > b.relative_l2; });
  worst.resize(std::min<std::size_t>(worst.size(), 5));
  for (const ParameterDifference& parameter : worst)
    text += fmt::format("  {:<32} relative L2 {:.3g}\n", parameter.name, parameter.relative_l2);
  text += "compared (difference, what is allowed)\n";
  for (const Comparison& one : report.compared)
    text += fmt::format("  {:<16} {:<26} {:>8.2g}  {:>8.2g}  {}\n", one.where, one.what, one.relative_l2, one.tolerance,
                        word_of(one.verdict));
  for (const std::string& note : report.notes) text += "note: " + note + "\n";
  if (!report.reason.empty()) text += fmt::format("most likely reason ({}): {}\n", report.cause, report.reason);
  return text + verdict_line(report);
}

namespace {

bool is_of_a_class(const MetricValue& metric) {
  return metric.name.starts_with("f1_class_");
}

std::string value_text(const MetricValue& metric) {
  if (metric.name.starts_with("top_")) return fmt::format("{:.2f} %", metric.value * 100.0);
  return metric.name == "perplexity" ? fmt::format("{:.3f}", metric.value) : fmt::format("{:.4g}", metric.value);
}

}  // namespace

std::string beginning_text(const Configuration& configuration, int num_ranks, const std::string& command) {
  const RunConfiguration& run = configuration.run;
  std::string text = fmt::format("{} rank{}; model {}, data {}{}; {} samples a step", num_ranks,
                                 num_ranks == 1 ? "" : "s", configuration.model.kind, configuration.data.train.kind,
                                 configuration.data.train.path.empty() ? "" : " in " + configuration.data.train.path,
                                 configuration.batch.global_batch_size);
  if (command == "train" && run.epochs) text += fmt::format(", {} epoch{}", *run.epochs, *run.epochs == 1 ? "" : "s");
  if (command == "train" && run.max_steps) text += fmt::format(", {} steps", *run.max_steps);
  return text + "\n";
}

std::string result_text(const TrainResult& result) {
  std::string text =
      fmt::format("done: {} step{}, {} samples", result.steps, result.steps == 1 ? "" : "s", result.consumed_samples);
  text +=
      result.samples_per_second > 0.0 ? fmt::format(", train loss {:.4f}", result.train_loss) : ", none of them now";
  if (result.validation) {
    text += fmt::format(", validation loss {:.6f}", result.validation->loss);
    if (result.validation->accuracy)
      text += fmt::format(", validation accuracy {:.2f} %", *result.validation->accuracy * 100.0);
  }
  if (result.samples_per_second > 0.0) {
    text +=
        fmt::format("\n{:.0f} samples/s; a step took {:.2f} ms (median; 95 % within {:.2f} ms), predicted {:.2f} ms",
                    result.samples_per_second, result.step_seconds.median * 1e3, result.step_seconds.p95 * 1e3,
                    result.predicted_step_seconds * 1e3);
  }
  return fmt::format("{}\neverything about the run is in {}\n", text, result.run_dir);
}

std::string metrics_text(const EvaluationResult& result) {
  std::string text = result.accuracy ? fmt::format(", accuracy {:.2f} %", *result.accuracy * 100.0) : "";
  for (const MetricValue& metric : result.metrics) {
    if (!is_of_a_class(metric)) text += fmt::format(", {} {}", metric.name, value_text(metric));
  }
  return text;
}

std::string classes_text(const EvaluationResult& result) {
  std::string text;
  for (const MetricValue& metric : result.metrics) {
    if (is_of_a_class(metric)) text += fmt::format("{} {:.4f}\n", metric.name, metric.value);
  }
  if (result.confusion_matrix.empty()) return text;
  text += "true class: how often which was predicted\n";
  for (std::size_t label = 0; label < result.confusion_matrix.size(); ++label)
    text += fmt::format("{:>10}: {}\n", label, fmt::join(result.confusion_matrix[label], " "));
  return text;
}

}  // namespace onebatch::launch
