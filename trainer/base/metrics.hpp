// A validation's numbers by their names, and which way each is better.
#pragma once

#include "trainer/base/results.hpp"

#include <optional>
#include <string_view>

namespace onebatch {

/// "loss", "accuracy" or one of EvaluationResult::metrics; none where the result has no such number.
std::optional<double> metric_named(const EvaluationResult& result, std::string_view name);

/// Whether more of it is better: of accuracy, top_K, f1_... and r2, and of no loss or error.
bool greater_is_better(std::string_view name);

}  // namespace onebatch
