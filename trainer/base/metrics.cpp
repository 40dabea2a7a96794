#include "trainer/base/metrics.hpp"

#include <algorithm>

namespace onebatch {

std::optional<double> metric_named(const EvaluationResult& result, std::string_view name) {
  if (name == "loss") return result.loss;
  if (name == "accuracy") return result.accuracy;
  const auto found = std::ranges::find(result.metrics, name, &MetricValue::name);
  if (found == result.metrics.end()) return std::nullopt;
  return found->value;
}

bool greater_is_better(std::string_view name) {
  return name == "accuracy" || name == "r2" || name.starts_with("top_") || name.starts_with("f1_");
}

}  // namespace onebatch
