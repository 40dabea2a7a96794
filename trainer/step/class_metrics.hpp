// Top-k, F1, the confusion matrix and perplexity of labels: counts, and sums that any order of samples gives alike. No
// LibTorch here.
#pragma once

#include "trainer/base/metrics.hpp"
#include "trainer/step/wide_sum.hpp"

#include <cstdint>
#include <vector>

namespace onebatch {

/// Up to so many classes each one's F1, and the confusion matrix, may be asked for.
constexpr std::int64_t k_most_listed_classes = 1024;

/// Labels that count, and what the model's outputs say of them.
struct SeenLabels {
  std::vector<std::int64_t> labels = {};
  std::vector<std::int64_t> predicted = {};  // the class of the largest output
  std::vector<std::int64_t> places = {};     // of the label's output among all, the largest at 0; empty: not asked for
  std::vector<double> cross_entropies = {};  // -log of the label's probability; empty: not asked for
  std::vector<double> weights = {};          // that those count with; empty: 1
};

/// Of some samples; sums over ranks by adding them up.
struct ClassSums {
  std::int64_t counted = 0;
  std::vector<std::int64_t> hits;       // of each top_K, in the order of the metrics
  std::vector<std::int64_t> right;      // by class, as are the next two
  std::vector<std::int64_t> labelled;   // have that label
  std::vector<std::int64_t> predicted;  // have that prediction
  std::vector<std::int64_t> pairs;      // [label, predicted]; empty: no confusion matrix is asked for
  WideSum cross_entropy;
  WideSum weight;
};

class ClassMetrics {
 public:
  ClassMetrics(std::vector<Metric> metrics, std::int64_t num_classes);

  [[nodiscard]] bool needs_predictions() const;
  [[nodiscard]] bool needs_places() const { return !sums_.hits.empty(); }
  [[nodiscard]] bool needs_cross_entropies() const;
  [[nodiscard]] bool lists_pairs() const;

  void add(const SeenLabels& seen);
  /// Room for so many classes: a model may predict some that no label names.
  void grow(std::int64_t num_classes);
  [[nodiscard]] std::int64_t num_classes() const { return static_cast<std::int64_t>(sums_.right.size()); }
  [[nodiscard]] ClassSums& sums() { return sums_; }

  /// `class_names`: may be empty. Classes beyond them, which a model of more outputs may predict, go by their numbers.
  void put_into(EvaluationResult& result, const std::vector<std::string>& class_names) const;

 private:
  [[nodiscard]] double f1(std::size_t of_class) const;
  [[nodiscard]] double f1_macro() const;
  void put_f1_per_class(EvaluationResult& result, const std::vector<std::string>& class_names) const;
  void put_confusion_matrix(EvaluationResult& result) const;

  std::vector<Metric> metrics_;
  ClassSums sums_;
};

}  // namespace onebatch
