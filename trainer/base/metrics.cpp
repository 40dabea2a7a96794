#include "trainer/base/metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace onebatch {
namespace {

struct NamedKind {
  std::string_view name;
  MetricKind kind;
};

constexpr std::array<NamedKind, 6> k_kinds = {{{"f1_macro", MetricKind::f1_macro},
                                               {"f1_per_class", MetricKind::f1_per_class},
                                               {"confusion_matrix", MetricKind::confusion_matrix},
                                               {"perplexity", MetricKind::perplexity},
                                               {"mean_absolute_error", MetricKind::mean_absolute_error},
                                               {"r2", MetricKind::r2}}};
constexpr std::string_view k_top = "top_";

}  // namespace

std::optional<Metric> metric_of(std::string_view name) {
  const auto found = std::ranges::find(k_kinds, name, &NamedKind::name);
  if (found != k_kinds.end()) return Metric{found->kind};
  if (!name.starts_with(k_top)) return std::nullopt;
  Metric top{MetricKind::top};
  const char* end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + k_top.size(), end, top.k);
  if (read.ec != std::errc() || read.ptr != end || top.k < 1 || name_of(top) != name) return std::nullopt;
  return top;
}

std::string name_of(const Metric& metric) {
  if (metric.kind == MetricKind::top) return fmt::format("{}{}", k_top, metric.k);
  return std::string(std::ranges::find(k_kinds, metric.kind, &NamedKind::kind)->name);
}

std::optional<double> metric_named(const EvaluationResult& result, std::string_view name) {
  if (name == "loss") return result.loss;
  if (name == "accuracy") return result.accuracy;
  const auto found = std::ranges::find(result.metrics, name, &MetricValue::name);
  if (found == result.metrics.end()) return std::nullopt;
  return found->value;
}

bool greater_is_better(std::string_view name) {
  return name == "accuracy" || name == "r2" || name.starts_with(k_top) || name.starts_with("f1_");
}

}  // namespace onebatch
