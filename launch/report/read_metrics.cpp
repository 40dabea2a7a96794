#include "launch/report/read_metrics.hpp"

#include "trainer/base/error.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <set>

namespace onebatch::launch::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double k_none = std::numeric_limits<double>::quiet_NaN();
// Where a validation was, and how large; every other number is drawn.
const std::set<std::string> k_places = {"step", "epoch", "samples", "consumed_samples", "time", "lr"};

double number(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : k_none;
}

std::vector<double> numbers(const Json& line, const char* key) {
  std::vector<double> list;
  const auto found = line.find(key);
  if (found == line.end() || !found->is_array()) return list;
  for (const Json& one : *found) list.push_back(one.is_number() ? one.get<double>() : 0.0);
  return list;
}

// Of what a file says, however large.
std::int64_t whole(double value) {
  constexpr double k_most = 9007199254740992.0;  // 2^53
  return std::isfinite(value) ? static_cast<std::int64_t>(std::clamp(value, -k_most, k_most)) : 0;
}

double at_or_zero(const std::vector<double>& list, std::size_t i) {
  return i < list.size() && std::isfinite(list[i]) ? std::max(0.0, list[i]) : 0.0;
}

// Calls `told` with every line that has a step; returns how many have none.
std::int64_t for_each_line(const fs::path& file, const std::function<void(const Json&)>& told) {
  std::error_code error;
  if (!fs::exists(file, error)) return 0;
  std::ifstream in(file);
  if (!in) throw UserError(fmt::format("cannot read {}", file.string()));
  std::int64_t torn = 0;
  for (std::string line; std::getline(in, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && std::isfinite(number(json, "step"))) {
      told(json);
    } else if (line.find_first_not_of(" \t\r") != std::string::npos) {
      ++torn;
    }
  }
  if (in.bad()) throw UserError(fmt::format("cannot read {} to its end", file.string()));
  return torn;
}

// What the ranks did not compute or wait for data is what the busiest of them shared with the others, and for the
// others the wait for it.
void add_times(std::vector<RankTimes>& ranks, const Json& line, double step_seconds) {
  const std::vector<double> compute = numbers(line, "compute_seconds");
  const std::vector<double> wait = numbers(line, "data_wait_seconds");
  const std::vector<double> peak = numbers(line, "memory_peak_bytes");
  const std::size_t count = std::max(compute.size(), peak.size());
  if (ranks.size() < count) ranks.resize(count);
  double busiest = 0.0;
  for (std::size_t r = 0; r < count; ++r) busiest = std::max(busiest, at_or_zero(compute, r) + at_or_zero(wait, r));
  const double comm = number(line, "exposed_comm_seconds");
  const double left = std::max(0.0, std::isfinite(step_seconds) ? step_seconds - busiest : 0.0);
  const double exposed = std::isfinite(comm) ? std::clamp(comm, 0.0, left) : 0.0;
  for (std::size_t r = 0; r < count; ++r) {
    RankTimes& rank = ranks[r];
    const double own = at_or_zero(compute, r) + at_or_zero(wait, r);
    rank.compute_seconds += at_or_zero(compute, r);
    rank.data_wait_seconds += at_or_zero(wait, r);
    rank.exposed_comm_seconds += exposed;
    rank.idle_seconds += busiest - own;
    rank.rest_seconds += left - exposed;
    rank.memory_peak_bytes = std::max(rank.memory_peak_bytes, whole(at_or_zero(peak, r)));
    ++rank.steps;
  }
}

void add_step(Metrics& metrics, const Json& line, std::int64_t ranks_after) {
  StepColumns& columns = metrics.columns;
  columns.step.push_back(number(line, "step"));
  columns.consumed_samples.push_back(number(line, "consumed_samples"));
  columns.loss.push_back(number(line, "loss"));
  columns.lr.push_back(number(line, "lr"));
  columns.grad_norm.push_back(number(line, "grad_norm"));
  columns.loss_scale.push_back(number(line, "loss_scale"));
  columns.samples_per_second.push_back(number(line, "samples_per_second"));
  columns.step_seconds.push_back(number(line, "step_seconds"));
  columns.plan.push_back(whole(number(line, "plan")));
  metrics.last_epoch = whole(number(line, "epoch"));
  const auto skipped = line.find("skipped");
  if (skipped != line.end() && skipped->is_boolean() && skipped->get<bool>())
    metrics.skipped_steps.push_back(whole(columns.step.back()));
  const std::int64_t step = whole(columns.step.back());
  if (step > ranks_after)
    add_times(metrics.ranks, line, columns.step_seconds.back());
  else
    metrics.not_of_ranks = std::max(metrics.not_of_ranks, step);
}

double samples_after(const Metrics& metrics, double step) {
  const auto& steps = metrics.columns.step;
  const auto found = std::lower_bound(steps.begin(), steps.end(), step);
  if (found == steps.end() || *found != step) return step == 0.0 ? 0.0 : k_none;
  return metrics.columns.consumed_samples[static_cast<std::size_t>(found - steps.begin())];
}

std::vector<std::vector<std::int64_t>> matrix_of(const Json& rows) {
  std::vector<std::vector<std::int64_t>> matrix;
  for (const Json& row : rows) {
    if (!row.is_array() || row.size() != rows.size()) return {};
    auto& numbers_of_row = matrix.emplace_back();
    for (const Json& one : row) {
      if (!one.is_number()) return {};
      numbers_of_row.push_back(whole(one.get<double>()));
    }
  }
  return matrix;
}

void add_validation(Validations& validations, const Json& line, const Metrics& metrics) {
  ++validations.count;
  const double step = number(line, "step");
  double samples = number(line, "consumed_samples");
  if (!std::isfinite(samples)) samples = samples_after(metrics, step);
  for (const auto& [name, value] : line.items()) {
    if (name == "confusion_matrix" && value.is_array()) validations.last_confusion = matrix_of(value);
    if (k_places.contains(name) || !(value.is_number() || value.is_null())) continue;
    auto column = std::find_if(validations.columns.begin(), validations.columns.end(),
                               [&](const ValidationColumn& one) { return one.name == name; });
    if (column == validations.columns.end())
      column = validations.columns.insert(validations.columns.end(), ValidationColumn{.name = name});
    column->step.push_back(step);
    column->consumed_samples.push_back(samples);
    column->value.push_back(value.is_number() ? value.get<double>() : k_none);
  }
}

}  // namespace

Metrics read_metrics(const fs::path& file, std::int64_t ranks_after) {
  Metrics metrics;
  metrics.torn_lines = for_each_line(file, [&](const Json& line) { add_step(metrics, line, ranks_after); });
  return metrics;
}

Validations read_validations(const fs::path& file, const Metrics& metrics) {
  Validations validations;
  validations.torn_lines = for_each_line(file, [&](const Json& line) { add_validation(validations, line, metrics); });
  return validations;
}

}  // namespace onebatch::launch::report
