// Which metrics a run's validations have.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/base/metrics.hpp"

#include <string>
#include <vector>

namespace onebatch {

class Dataset;

/// Metrics that stand for themselves are left out where a model's outputs are not of the targets' shape.
enum class MetricsFrom { configuration, loss_kind };

struct ChosenMetrics {
  std::vector<Metric> metrics = {};
  MetricsFrom from = MetricsFrom::loss_kind;
};

/// Why a metric is not to be had of so many classes, or of a model of so many outputs, and what to write instead;
/// empty: it is.
std::string unfit_words(const Metric& metric, std::int64_t num_classes);

/// run.metrics, or, where that is empty, what goes with the loss: perplexity where each sample is a row of labels, as
/// text is; the mean absolute error and R2 of numbers. Throws UserError where one does not belong to the loss's kind,
/// and lists those that do, and where there are too few or too many classes for it. `num_classes`: the least that the
/// model has outputs.
ChosenMetrics chosen_metrics(const Configuration& configuration, const Dataset& validation, std::int64_t num_classes);

}  // namespace onebatch
