// A validation's numbers beside its loss: what they are called, and which way each is better.
#pragma once

#include "trainer/base/results.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onebatch {

enum class MetricKind {
  top,               // top_K: the share of labels that are among their K largest outputs
  f1_macro,          // the mean of the classes' F1
  f1_per_class,      // F1 of each class, a number each
  confusion_matrix,  // how often which class was taken for which
  perplexity,        // exp of the mean cross-entropy of a label
  mean_absolute_error,
  r2  // the share of the targets' variance that the outputs explain
};

struct Metric {
  bool operator==(const Metric&) const = default;

  MetricKind kind = MetricKind::top;
  std::int64_t k = 0;  // top
};

/// What run.metrics calls it; none where there is none of that name.
std::optional<Metric> metric_of(std::string_view name);
std::string name_of(const Metric& metric);

/// "loss", "accuracy" or one of EvaluationResult::metrics; none where the result has no such number.
std::optional<double> metric_named(const EvaluationResult& result, std::string_view name);

/// Whether more of it is better: of accuracy, top_K, f1_... and r2, and of no loss or error.
bool greater_is_better(std::string_view name);

}  // namespace onebatch
