#include "trainer/base/metrics.hpp"

#include <gtest/gtest.h>

namespace onebatch {
namespace {

TEST(MetricsTest, numbers_are_found_by_their_names) {
  const EvaluationResult result{
      .loss = 0.5, .accuracy = 0.25, .samples = 8, .metrics = {{"top_5", 0.75}, {"r2", -1.0}}};
  EXPECT_EQ(metric_named(result, "loss"), 0.5);
  EXPECT_EQ(metric_named(result, "accuracy"), 0.25);
  EXPECT_EQ(metric_named(result, "top_5"), 0.75);
  EXPECT_EQ(metric_named(result, "r2"), -1.0);
  EXPECT_EQ(metric_named(result, "top_50"), std::nullopt);
  EXPECT_EQ(metric_named(result, ""), std::nullopt);
}

TEST(MetricsTest, every_metric_has_one_name) {
  for (const char* name : {"top_1", "top_5", "top_1000", "f1_macro", "f1_per_class", "confusion_matrix", "perplexity",
                           "mean_absolute_error", "r2"}) {
    const auto metric = metric_of(name);
    ASSERT_TRUE(metric.has_value()) << name;
    EXPECT_EQ(name_of(*metric), name);
  }
  EXPECT_EQ(metric_of("top_12"), (Metric{MetricKind::top, 12}));
}

TEST(MetricsTest, nothing_else_is_one) {
  for (const char* name : {"", "top", "top_", "top_0", "top_-1", "top_05", "top_5 ", "top_+5", "top_1.0", "Top_5", "f1",
                           "f1_class_0", "loss", "accuracy", "top_99999999999999999999"})
    EXPECT_EQ(metric_of(name), std::nullopt) << name;
}

TEST(MetricsTest, no_accuracy_is_not_an_accuracy_of_zero) {
  EXPECT_EQ(metric_named({.loss = 0.5}, "accuracy"), std::nullopt);
}

TEST(MetricsTest, shares_that_are_right_are_better_when_greater_and_errors_when_less) {
  for (const char* name : {"accuracy", "top_1", "top_5", "f1_macro", "f1_class_3", "r2"})
    EXPECT_TRUE(greater_is_better(name)) << name;
  for (const char* name : {"loss", "perplexity", "mean_absolute_error"}) EXPECT_FALSE(greater_is_better(name)) << name;
}

}  // namespace
}  // namespace onebatch
