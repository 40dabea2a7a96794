#include "trainer/step/chosen_metrics.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/models/loss.hpp"
#include "trainer/step/class_metrics.hpp"

#include <fmt/format.h>

namespace onebatch {
namespace {

bool belongs_to(Targets targets, MetricKind kind) {
  switch (kind) {
    case MetricKind::top:
    case MetricKind::f1_macro:
    case MetricKind::f1_per_class:
    case MetricKind::confusion_matrix: return targets == Targets::classes;
    case MetricKind::perplexity: return targets != Targets::numbers;
    case MetricKind::mean_absolute_error:
    case MetricKind::r2: return targets == Targets::numbers;
  }
  return false;
}

std::string metrics_of(Targets targets) {
  switch (targets) {
    case Targets::classes:
      return R"("loss", "accuracy", "top_K" (as "top_5"), "f1_macro", "f1_per_class", "confusion_matrix" and "perplexity")";
    case Targets::numbers: return R"("loss", "mean_absolute_error" and "r2")";
    case Targets::none: return R"("loss" and "perplexity")";
  }
  return {};
}

[[noreturn]] void refuse(const LossConfiguration& loss, const std::string& name) {
  throw UserError(fmt::format(R"(run.metrics: "{}" does not belong to loss.kind = "{}": write some of {})", name,
                              loss.kind, metrics_of(targets_of(loss))));
}

// Another kind may have more outputs than there are classes, which its first validation shows.
bool has_as_many_outputs(const ModelConfiguration& model) {
  return model.kind == "mlp" || model.kind == "resnet";
}

void check_classes(const Metric& metric, const ModelConfiguration& model, std::int64_t num_classes) {
  if (metric.kind == MetricKind::top && !has_as_many_outputs(model)) return;
  if (const std::string words = unfit_words(metric, num_classes); !words.empty())
    throw UserError("run.metrics: " + words);
}

// Where each sample is a row of labels.
bool is_text(const Dataset& data) {
  const std::int64_t some = 0;
  const at::Tensor targets = data.gather({&some, 1}, at::kFloat).targets;
  return targets.defined() && targets.dim() == 2;
}

std::vector<Metric> usual_metrics(const LossConfiguration& loss, const Dataset& validation) {
  switch (targets_of(loss)) {
    case Targets::numbers: return {{MetricKind::mean_absolute_error}, {MetricKind::r2}};
    case Targets::classes:
      if (loss.kind == "cross_entropy" && is_text(validation)) return {{MetricKind::perplexity}};
      return {};
    case Targets::none: return {};
  }
  return {};
}

}  // namespace

std::string unfit_words(const Metric& metric, std::int64_t num_classes) {
  const bool lists = metric.kind == MetricKind::f1_per_class || metric.kind == MetricKind::confusion_matrix;
  if (lists && num_classes > k_most_listed_classes)
    return fmt::format(R"("{}" is for {} classes at most, and there are {}: write "f1_macro")", name_of(metric),
                       k_most_listed_classes, num_classes);
  if (metric.kind != MetricKind::top || metric.k < num_classes) return {};
  return fmt::format(R"("{}" of {} class{} is 1 whatever the model does: {})", name_of(metric), num_classes,
                     num_classes == 1 ? "" : "es",
                     num_classes > 2 ? fmt::format(R"(write "top_{}" or less)", num_classes - 1) : "leave it out");
}

ChosenMetrics chosen_metrics(const Configuration& configuration, const Dataset& validation, std::int64_t num_classes) {
  const LossConfiguration& loss = configuration.loss;
  const std::vector<std::string>& names = configuration.run.metrics;
  if (names.empty()) return {usual_metrics(loss, validation), MetricsFrom::loss_kind};
  ChosenMetrics chosen{{}, MetricsFrom::configuration};
  for (const std::string& name : names) {
    if (name == "loss" || (name == "accuracy" && targets_of(loss) == Targets::classes)) continue;
    const std::optional<Metric> metric = metric_of(name);
    if (!metric || !belongs_to(targets_of(loss), metric->kind)) refuse(loss, name);
    check_classes(*metric, configuration.model, num_classes);
    chosen.metrics.push_back(*metric);
  }
  return chosen;
}

}  // namespace onebatch
