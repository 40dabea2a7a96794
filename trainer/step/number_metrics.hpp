// The mean absolute error and R2 of numbers: sums for each output that any order of samples gives alike, also where
// targets lie far from 0 and close together. No LibTorch here.
#pragma once

#include "trainer/base/metrics.hpp"
#include "trainer/step/wide_sum.hpp"

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace onebatch {

/// Numbers [rows, outputs], row by row.
struct SeenNumbers {
  std::size_t num_outputs = 0;
  std::vector<double> targets = {};
  std::vector<double> outputs = {};
  std::vector<double> weights = {};  // that each counts with; empty: 1
};

/// Of one output.
struct NumberSums {
  WideSum weight;
  WideSum targets;
  WideSum squared_targets;
  WideSum squared_errors;
  WideSum absolute_errors;
};

/// Of one output: where the two are the same its targets have no variance, whatever was rounded.
struct TargetRange {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
};

class NumberMetrics {
 public:
  explicit NumberMetrics(std::vector<Metric> metrics) : metrics_(std::move(metrics)) {}

  void add(const SeenNumbers& seen);
  /// Room for so many outputs.
  void grow(std::size_t num_outputs);
  [[nodiscard]] std::size_t num_outputs() const { return sums_.size(); }

  [[nodiscard]] std::span<NumberSums> sums() { return sums_; }
  [[nodiscard]] std::span<TargetRange> ranges() { return ranges_; }
  /// Rows that count for something.
  [[nodiscard]] std::int64_t& rows() { return rows_; }

  void put_into(EvaluationResult& result) const;

 private:
  [[nodiscard]] double mean_absolute_error() const;
  [[nodiscard]] double r2() const;

  std::vector<Metric> metrics_;
  std::int64_t rows_ = 0;
  std::vector<NumberSums> sums_;
  std::vector<TargetRange> ranges_;
};

}  // namespace onebatch
