// Which metrics a run's validations have.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/base/metrics.hpp"

#include <vector>

namespace onebatch {

class Dataset;

/// Metrics that stand for themselves are left out where a model's outputs are not of the targets' shape.
enum class MetricsFrom { configuration, loss_kind };

struct ChosenMetrics {
  std::vector<Metric> metrics = {};
  MetricsFrom from = MetricsFrom::loss_kind;
};

/// run.metrics, or, where that is empty, what goes with the loss: perplexity where each sample is a row of labels, as
/// text is; the mean absolute error and R2 of numbers. Throws UserError where one does not belong to the loss's kind,
/// and lists those that do.
ChosenMetrics chosen_metrics(const Configuration& configuration, const Dataset& validation, std::int64_t num_classes);

}  // namespace onebatch
