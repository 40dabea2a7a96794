#include "trainer/step/number_metrics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace onebatch {
namespace {

const std::vector<Metric> k_both = {{MetricKind::mean_absolute_error}, {MetricKind::r2}};
const SeenNumbers k_seen{3,
                         {3, -0.5, 1, 2, 0.25, 1, 7, 4, 1, -1, 2, 1, 0.5, 8, 1},
                         {2.5, 0, 1, 2.25, 0.5, 1, 8, 3, 1, -2, 2.5, 1, 0, 7, 1.5},
                         {}};

struct Found {
  double mean_absolute_error = 0.0;
  double r2 = 0.0;
};

Found found_of(const NumberMetrics& metrics) {
  EvaluationResult result;
  metrics.put_into(result);
  return {metric_named(result, "mean_absolute_error").value(), metric_named(result, "r2").value()};
}

Found found_of(const std::vector<SeenNumbers>& parts) {
  NumberMetrics metrics(k_both);
  for (const SeenNumbers& part : parts) metrics.add(part);
  return found_of(metrics);
}

// scikit-learn 1.9.1: mean_absolute_error and r2_score of these five rows; the third target is the same in all.
TEST(NumberMetricsTest, are_those_of_scikit_learn) {
  const Found found = found_of({k_seen});
  EXPECT_NEAR(found.mean_absolute_error, 0.46666666666666673, 1e-15);
  EXPECT_NEAR(found.r2, 0.62508644031478877, 1e-15);
  SeenNumbers weighted = k_seen;
  for (const double weight : {1.0, 2.0, 0.5, 1.0, 3.0}) weighted.weights.insert(weighted.weights.end(), 3, weight);
  EXPECT_NEAR(found_of({weighted}).mean_absolute_error, 0.46666666666666662, 1e-15);
  EXPECT_NEAR(found_of({weighted}).r2, 0.62062688343479577, 1e-15);
}

TEST(NumberMetricsTest, targets_that_are_all_alike_have_nothing_to_explain) {
  EXPECT_EQ(found_of({{1, {0.1, 0.1, 0.1}, {0.1, 0.1, 0.1}, {}}}).r2, 1.0);
  EXPECT_EQ(found_of({{1, {0.1, 0.1, 0.1}, {0.1, 0.1, 0.2}, {}}}).r2, 0.0);
}

TEST(NumberMetricsTest, of_what_is_not_a_number_there_is_no_r2) {
  EXPECT_TRUE(std::isnan(found_of({{1, {1, NAN, 4}, {1, 3, 3}, {}}}).r2));
  EXPECT_TRUE(std::isnan(found_of({{1, {1, 2, 4}, {1, NAN, 3}, {}}}).r2));
  EXPECT_TRUE(std::isnan(found_of({{1, {1, HUGE_VAL, 4}, {1, 3, 3}, {}}}).r2));
  EXPECT_TRUE(std::isnan(found_of({{1, {2, NAN, 2}, {2, 2, 2}, {}}}).r2)) << "the others are all alike";
  EXPECT_TRUE(std::isnan(found_of({{1, {2, 2, 2}, {2, NAN, 2}, {}}}).r2));
  EXPECT_TRUE(std::isnan(found_of({{1, {2, 2, 2}, {2, HUGE_VAL, 2}, {}}}).r2));
  EXPECT_TRUE(std::isnan(found_of({{2, {1, 1, 2, NAN, 4, 3}, {1, 1, 3, 2, 3, 3}, {}}}).r2)) << "one of two outputs";
}

TEST(NumberMetricsTest, what_weighs_nothing_is_not_there) {
  const Found without = found_of({{1, {1, 2, 4}, {1, 3, 3}, {}}});
  const Found with = found_of({{1, {1, 1e300, 2, 4}, {1, NAN, 3, 3}, {1, 0, 1, 1}}});
  EXPECT_EQ(with.r2, without.r2);
  EXPECT_EQ(with.mean_absolute_error, without.mean_absolute_error);
  EXPECT_EQ(found_of({{2, {1, 9, 2, 9, 4, 9}, {1, 0, 3, 0, 3, 0}, {1, 0, 1, 0, 1, 0}}}).r2, without.r2);
}

TEST(NumberMetricsTest, of_less_than_two_rows_there_is_no_r2) {
  EXPECT_TRUE(std::isnan(found_of(std::vector<SeenNumbers>{}).mean_absolute_error));
  EXPECT_TRUE(std::isnan(found_of({{1, {1}, {2}, {}}}).r2));
  EXPECT_EQ(found_of({{1, {1}, {2}, {}}}).mean_absolute_error, 1.0);
  EXPECT_TRUE(std::isnan(found_of({{1, {1, 2}, {2, 2}, {1, 0}}}).r2));
}

// In whole numbers the sums are exact: whatever lies far from 0 must not be seen in the last digit.
TEST(NumberMetricsTest, a_large_offset_spoils_nothing) {
  std::mt19937 generator(7);
  std::vector<std::int64_t> targets;
  std::vector<std::int64_t> outputs;
  for (std::int64_t i = 0; i < 1001; ++i) {
    targets.push_back(i / 7);  // in order, so that parts have unlike means
    outputs.push_back(targets.back() + static_cast<std::int64_t>(generator() % 5) - 2);
  }
  std::int64_t sum = 0;
  std::int64_t squares = 0;
  std::int64_t errors = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    sum += targets[i];
    squares += targets[i] * targets[i];
    errors += (targets[i] - outputs[i]) * (targets[i] - outputs[i]);
  }
  const double expected = 1.0 - 1001.0 * static_cast<double>(errors) / static_cast<double>(1001 * squares - sum * sum);
  struct Case {
    double offset, tolerance;
  };
  for (const auto [offset, tolerance] : {Case{0.0, 1e-15}, {1e8, 1e-14}, {-1e10, 1e-12}, {1e12, 1e-8}}) {
    for (const std::size_t parts : {1U, 3U, 40U}) {
      std::vector<SeenNumbers> seen(parts);
      for (std::size_t i = 0; i < targets.size(); ++i) {
        SeenNumbers& part = seen[i * parts / targets.size()];
        part.num_outputs = 1;
        part.targets.push_back(offset + static_cast<double>(targets[i]));
        part.outputs.push_back(offset + static_cast<double>(outputs[i]));
      }
      EXPECT_NEAR(found_of(seen).r2, expected, tolerance) << offset << " in " << parts;
    }
  }
}

TEST(NumberMetricsTest, one_far_target_spoils_nothing) {
  // Squares around the mean of (0, 1, ..., 9, x) for x = 1e9: closed form over integers.
  SeenNumbers seen{1, {}, {}, {}};
  for (int i = 0; i < 10; ++i) seen.targets.push_back(i);
  seen.targets.push_back(1e9);
  seen.outputs = seen.targets;
  seen.outputs[4] += 3e8;
  const double around = (11.0 * (285.0 + 1e18) - (45.0 + 1e9) * (45.0 + 1e9)) / 11.0;
  EXPECT_NEAR(found_of({seen}).r2, 1.0 - 9e16 / around, 1e-15);
}

TEST(WideSumTest, what_cancels_leaves_what_was_small) {
  WideSum sum;
  for (const double value : {1e16, 1.0, -1e16, 1e-9}) sum.add(value);
  EXPECT_EQ(sum.value(), 1.0 + 1e-9);
}

TEST(WideSumTest, products_keep_the_digits_that_a_double_has_not) {
  const double third = 1.0 / 3.0;
  WideSum product;
  product.add_product(third, third);
  product.add(-(third * third));
  EXPECT_EQ(product.value(), std::fma(third, third, -(third * third)));
}

TEST(WideSumTest, what_is_not_finite_stays_so) {
  WideSum sum;
  sum.add(HUGE_VAL);
  sum.add(1.0);
  EXPECT_EQ(sum.value(), HUGE_VAL);
  sum.add(-HUGE_VAL);
  EXPECT_TRUE(std::isnan(sum.value()));
}

}  // namespace
}  // namespace onebatch
