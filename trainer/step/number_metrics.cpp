#include "trainer/step/number_metrics.hpp"

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr double k_none = std::numeric_limits<double>::quiet_NaN();

void add_number(NumberSums& sums, double target, double output, double weight) {
  WideSum weighted;
  weighted.add_product(weight, target);
  const double error = target - output;
  sums.weight.add(weight);
  sums.targets.add(weighted);
  sums.squared_targets.add(product_of(weighted, target));
  sums.squared_errors.add(product_of(product_of({weight}, error), error));
  sums.absolute_errors.add_product(weight, std::abs(error));
}

// Of targets around their mean: what cancels here is why the sums are wide.
double squares_around_mean(const NumberSums& sums) {
  const double mean = sums.targets.value() / sums.weight.value();  // rounded: the true one is off / weight away
  WideSum off = sums.targets;
  off.add(product_of(sums.weight, -mean));
  WideSum around = sums.squared_targets;
  around.add(product_of(sums.targets, -2.0 * mean));
  around.add(product_of(product_of(sums.weight, mean), mean));
  const double squares = around.value() - off.value() * off.value() / sums.weight.value();
  return squares < 0.0 ? 0.0 : squares;  // what is not a number stays so
}

// As scikit-learn's r2_score of one output, which is finite where targets are all alike and errors are finite.
double r2_of(const NumberSums& sums, const TargetRange& range) {
  const double errors = sums.squared_errors.value();
  const double squares = range.least == range.most ? 0.0 : squares_around_mean(sums);
  if (squares != 0.0) return 1.0 - errors / squares;
  if (!std::isfinite(errors)) return k_none;
  return errors == 0.0 ? 1.0 : 0.0;
}

}  // namespace

void NumberMetrics::grow(std::size_t num_outputs) {
  if (num_outputs <= sums_.size()) return;
  sums_.resize(num_outputs);
  ranges_.resize(num_outputs);
}

void NumberMetrics::add(const SeenNumbers& seen) {
  grow(seen.num_outputs);
  for (std::size_t begin = 0; begin < seen.targets.size(); begin += seen.num_outputs) {
    bool counts = false;
    for (std::size_t i = 0; i < seen.num_outputs; ++i) {
      const double weight = seen.weights.empty() ? 1.0 : seen.weights[begin + i];
      if (weight == 0.0) continue;
      const double target = seen.targets[begin + i];
      add_number(sums_[i], target, seen.outputs[begin + i], weight);
      ranges_[i] = {std::min(ranges_[i].least, target), std::max(ranges_[i].most, target)};
      counts = true;
    }
    rows_ += counts ? 1 : 0;
  }
}

// Each the mean over the outputs of which some number counts.
double NumberMetrics::mean_absolute_error() const {
  double sum = 0.0;
  double outputs = 0.0;
  for (const NumberSums& one : sums_) {
    if (one.weight.value() == 0.0) continue;
    sum += one.absolute_errors.value() / one.weight.value();
    outputs += 1.0;
  }
  return outputs > 0.0 ? sum / outputs : k_none;
}

double NumberMetrics::r2() const {
  if (rows_ < 2) return k_none;
  double sum = 0.0;
  double outputs = 0.0;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    if (sums_[i].weight.value() == 0.0) continue;
    sum += r2_of(sums_[i], ranges_[i]);
    outputs += 1.0;
  }
  return outputs > 0.0 ? sum / outputs : k_none;
}

void NumberMetrics::put_into(EvaluationResult& result) const {
  for (const Metric& metric : metrics_) {
    if (metric.kind == MetricKind::mean_absolute_error)
      result.metrics.push_back({name_of(metric), mean_absolute_error()});
    if (metric.kind == MetricKind::r2) result.metrics.push_back({name_of(metric), r2()});
  }
}

}  // namespace onebatch
