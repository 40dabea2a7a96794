#include "trainer/step/class_metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace onebatch {
namespace {

double share_of(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : std::numeric_limits<double>::quiet_NaN();
}

bool has(const std::vector<Metric>& metrics, MetricKind kind) {
  return std::ranges::find(metrics, kind, &Metric::kind) != metrics.end();
}

// By the class's name, or its number where none is known. Whatever was predicted: a run may watch one of them.
std::string f1_name(const std::vector<std::string>& class_names, std::size_t of_class) {
  if (of_class < class_names.size()) return "f1_class_" + class_names[of_class];
  const std::string number = fmt::to_string(of_class);
  const bool is_a_name = std::ranges::find(class_names, number) != class_names.end();
  return (is_a_name ? "f1_class_#" : "f1_class_") + number;
}

}  // namespace

ClassMetrics::ClassMetrics(std::vector<Metric> metrics, std::int64_t num_classes) : metrics_(std::move(metrics)) {
  const auto tops = std::ranges::count(metrics_, MetricKind::top, &Metric::kind);
  sums_.hits.resize(static_cast<std::size_t>(tops));
  if (needs_predictions()) grow(num_classes);
}

bool ClassMetrics::needs_predictions() const {
  return has(metrics_, MetricKind::f1_macro) || has(metrics_, MetricKind::f1_per_class) || lists_pairs();
}

bool ClassMetrics::needs_cross_entropies() const {
  return has(metrics_, MetricKind::perplexity);
}

bool ClassMetrics::lists_pairs() const {
  return has(metrics_, MetricKind::confusion_matrix);
}

void ClassMetrics::grow(std::int64_t num_classes) {
  const std::size_t before = sums_.right.size();
  const auto now = std::max(before, static_cast<std::size_t>(num_classes));
  if (now == before) return;
  for (auto* counts : {&sums_.right, &sums_.labelled, &sums_.predicted}) counts->resize(now);
  if (!lists_pairs()) return;
  std::vector<std::int64_t> pairs(now * now);
  for (std::size_t label = 0; label < before; ++label) {
    const auto row = sums_.pairs.begin() + static_cast<std::ptrdiff_t>(label * before);
    std::copy_n(row, before, pairs.begin() + static_cast<std::ptrdiff_t>(label * now));
  }
  sums_.pairs = std::move(pairs);
}

void ClassMetrics::add(const SeenLabels& seen) {
  sums_.counted += std::ssize(seen.labels);
  std::size_t top = 0;
  for (const Metric& metric : metrics_) {
    if (metric.kind != MetricKind::top) continue;
    sums_.hits[top++] += std::ranges::count_if(seen.places, [&](std::int64_t place) { return place < metric.k; });
  }
  for (std::size_t i = 0; i < seen.cross_entropies.size(); ++i) {
    const double weight = seen.weights.empty() ? 1.0 : seen.weights[i];
    if (weight == 0.0) continue;  // also where the cross-entropy is infinite
    sums_.cross_entropy.add_product(weight, seen.cross_entropies[i]);
    sums_.weight.add(weight);
  }
  for (std::size_t i = 0; i < seen.predicted.size(); ++i) {
    grow(std::max(seen.labels[i], seen.predicted[i]) + 1);
    const auto label = static_cast<std::size_t>(seen.labels[i]);
    const auto predicted = static_cast<std::size_t>(seen.predicted[i]);
    sums_.right[label] += label == predicted ? 1 : 0;
    ++sums_.labelled[label];
    ++sums_.predicted[predicted];
    if (lists_pairs()) ++sums_.pairs[label * sums_.right.size() + predicted];
  }
}

// 2 TP / (2 TP + FP + FN), and 0 where there is nothing to divide by.
double ClassMetrics::f1(std::size_t of_class) const {
  const std::int64_t both = sums_.labelled[of_class] + sums_.predicted[of_class];
  return both > 0 ? 2.0 * static_cast<double>(sums_.right[of_class]) / static_cast<double>(both) : 0.0;
}

// Of the classes that occur, as labels or as predictions.
double ClassMetrics::f1_macro() const {
  double sum = 0.0;
  std::int64_t classes = 0;
  for (std::size_t i = 0; i < sums_.right.size(); ++i) {
    if (sums_.labelled[i] + sums_.predicted[i] == 0) continue;
    sum += f1(i);
    ++classes;
  }
  return classes > 0 ? sum / static_cast<double>(classes) : std::numeric_limits<double>::quiet_NaN();
}

void ClassMetrics::put_f1_per_class(EvaluationResult& result, const std::vector<std::string>& class_names) const {
  // Names that are no one class's alone tell nothing.
  const bool tell_apart = std::set<std::string>(class_names.begin(), class_names.end()).size() == class_names.size();
  const std::vector<std::string> names = tell_apart ? class_names : std::vector<std::string>();
  for (std::size_t i = 0; i < sums_.right.size(); ++i) result.metrics.push_back({f1_name(names, i), f1(i)});
}

void ClassMetrics::put_confusion_matrix(EvaluationResult& result) const {
  const std::size_t classes = sums_.right.size();
  for (std::size_t label = 0; label < classes; ++label) {
    const auto row = sums_.pairs.begin() + static_cast<std::ptrdiff_t>(label * classes);
    result.confusion_matrix.emplace_back(row, row + static_cast<std::ptrdiff_t>(classes));
  }
}

void ClassMetrics::put_into(EvaluationResult& result, const std::vector<std::string>& class_names) const {
  std::size_t top = 0;
  for (const Metric& metric : metrics_) {
    switch (metric.kind) {
      case MetricKind::top:
        result.metrics.push_back({name_of(metric), share_of(sums_.hits[top++], sums_.counted)});
        break;
      case MetricKind::f1_macro: result.metrics.push_back({name_of(metric), f1_macro()}); break;
      case MetricKind::f1_per_class: put_f1_per_class(result, class_names); break;
      case MetricKind::confusion_matrix: put_confusion_matrix(result); break;
      case MetricKind::perplexity:
        result.metrics.push_back({name_of(metric), std::exp(sums_.cross_entropy.value() / sums_.weight.value())});
        break;
      case MetricKind::mean_absolute_error:
      case MetricKind::r2: break;  // of numbers
    }
  }
}

}  // namespace onebatch
