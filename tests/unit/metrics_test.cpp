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
