#include "trainer/step/class_metrics.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

namespace onebatch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<std::int64_t> k_labels = {0, 1, 2, 2, 4, 0, 1, 2, 4, 4, 2, 0};
const std::vector<std::int64_t> k_predicted = {0, 1, 4, 2, 4, 1, 1, 0, 4, 0, 2, 0};
const std::vector<Metric> k_all = {{MetricKind::f1_macro}, {MetricKind::f1_per_class}, {MetricKind::confusion_matrix}};

EvaluationResult result_of(ClassMetrics metrics, const SeenLabels& seen, const std::vector<std::string>& names = {}) {
  EvaluationResult result;
  metrics.add(seen);
  metrics.put_into(result, names);
  return result;
}

double value(const EvaluationResult& result, const char* name) {
  return metric_named(result, name).value_or(-1.0);
}

// scikit-learn 1.9.1: f1_score(zero_division=0, labels=range(5)) and confusion_matrix(labels=range(5)); its macro
// average is over the labels that occur, which class 3 does not.
TEST(ClassMetricsTest, f1_and_the_confusion_matrix_are_those_of_scikit_learn) {
  const EvaluationResult result = result_of({k_all, 5}, {k_labels, k_predicted});
  EXPECT_NEAR(value(result, "f1_macro"), 0.67619047619047612, 1e-15);
  EXPECT_NEAR(value(result, "f1_class_0"), 0.5714285714285714, 1e-15);
  EXPECT_NEAR(value(result, "f1_class_1"), 0.8, 1e-15);
  EXPECT_NEAR(value(result, "f1_class_2"), 2.0 / 3.0, 1e-15);
  EXPECT_EQ(value(result, "f1_class_3"), 0.0);
  EXPECT_NEAR(value(result, "f1_class_4"), 2.0 / 3.0, 1e-15);
  EXPECT_THAT(result.confusion_matrix,
              ElementsAre(ElementsAre(2, 1, 0, 0, 0), ElementsAre(0, 2, 0, 0, 0), ElementsAre(1, 0, 2, 0, 1),
                          ElementsAre(0, 0, 0, 0, 0), ElementsAre(1, 0, 0, 0, 2)));
  EXPECT_EQ(result.metrics.size(), 6U);
}

TEST(ClassMetricsTest, classes_go_by_their_names_where_those_tell_them_apart) {
  const SeenLabels seen{{0, 1}, {0, 0}};
  const std::vector<Metric> per_class = {{MetricKind::f1_per_class}};
  EXPECT_NEAR(value(result_of({per_class, 2}, seen, {"cat", "dog"}), "f1_class_cat"), 2.0 / 3.0, 1e-15);
  EXPECT_EQ(value(result_of({per_class, 2}, seen, {"cat", "dog"}), "f1_class_dog"), 0.0);
  EXPECT_EQ(value(result_of({per_class, 2}, seen, {"cat", "cat"}), "f1_class_1"), 0.0);
  EXPECT_EQ(value(result_of({per_class, 2}, seen, {"cat"}), "f1_class_1"), 0.0);
}

TEST(ClassMetricsTest, a_label_is_among_the_k_largest_by_its_place) {
  const SeenLabels seen{.labels = {4, 4, 4, 4}, .places = {0, 1, 4, 1}};
  const std::vector<Metric> tops = {{MetricKind::top, 2}, {MetricKind::top, 1}, {MetricKind::top, 4}};
  const EvaluationResult result = result_of({tops, 5}, seen);
  EXPECT_EQ(value(result, "top_1"), 0.25);
  EXPECT_EQ(value(result, "top_2"), 0.75);
  EXPECT_EQ(value(result, "top_4"), 0.75);
  EXPECT_EQ(result.metrics.front().name, "top_2");  // in the order in which they were asked for
}

TEST(ClassMetricsTest, perplexity_is_of_the_weighted_mean) {
  const std::vector<Metric> perplexity = {{MetricKind::perplexity}};
  const double infinite = HUGE_VAL;
  EXPECT_NEAR(value(result_of({perplexity, 2}, {.labels = {0, 1}, .cross_entropies = {1.0, 3.0}}), "perplexity"),
              std::exp(2.0), 1e-14);
  EXPECT_NEAR(
      value(result_of({perplexity, 2},
                      {.labels = {0, 1, 1}, .cross_entropies = {1.0, 3.0, infinite}, .weights = {3.0, 1.0, 0.0}}),
            "perplexity"),
      std::exp(1.5), 1e-14);
  EXPECT_EQ(value(result_of({perplexity, 2}, {.labels = {0}, .cross_entropies = {infinite}}), "perplexity"), infinite);
}

TEST(ClassMetricsTest, a_prediction_that_no_label_has_makes_room_for_itself) {
  ClassMetrics metrics(k_all, 2);
  metrics.add({{0, 1}, {0, 1}});
  metrics.add({{1}, {3}});
  EvaluationResult result;
  metrics.put_into(result, {"cat", "dog"});
  EXPECT_THAT(result.confusion_matrix, ElementsAre(ElementsAre(1, 0, 0, 0), ElementsAre(0, 1, 0, 1),
                                                   ElementsAre(0, 0, 0, 0), ElementsAre(0, 0, 0, 0)));
  EXPECT_NEAR(value(result, "f1_macro"), (1.0 + 2.0 / 3.0) / 3.0, 1e-15);  // of classes 0, 1 and 3
}

std::vector<std::string> f1_names(const SeenLabels& seen, const std::vector<std::string>& class_names) {
  std::vector<std::string> names;
  for (const MetricValue& one : result_of({{{MetricKind::f1_per_class}}, 2}, seen, class_names).metrics)
    names.push_back(one.name);
  return names;
}

TEST(ClassMetricsTest, names_do_not_change_with_what_is_predicted) {
  EXPECT_THAT(f1_names({{0, 1}, {0, 1}}, {"cat", "dog"}), ElementsAre("f1_class_cat", "f1_class_dog"));
  EXPECT_THAT(f1_names({{0, 1}, {0, 3}}, {"cat", "dog"}),
              ElementsAre("f1_class_cat", "f1_class_dog", "f1_class_2", "f1_class_3"));
  EXPECT_THAT(f1_names({{0, 1}, {0, 2}}, {"1", "2"}), ElementsAre("f1_class_1", "f1_class_2", "f1_class_#2"));
  EXPECT_THAT(f1_names({{0, 1}, {0, 2}}, {}), ElementsAre("f1_class_0", "f1_class_1", "f1_class_2"));
}

TEST(ClassMetricsTest, of_no_labels_nothing_is_known) {
  const std::vector<Metric> all = {{MetricKind::f1_macro}, {MetricKind::top, 1}, {MetricKind::perplexity}};
  for (const MetricValue& one : result_of({all, 2}, {}).metrics) EXPECT_TRUE(std::isnan(one.value)) << one.name;
}

TEST(ClassMetricsTest, only_what_is_asked_for_is_looked_at) {
  const ClassMetrics none({}, std::int64_t{1} << 40);  // and no memory is taken for it
  EXPECT_FALSE(none.needs_predictions() || none.needs_places() || none.needs_cross_entropies());
  const ClassMetrics perplexity({{MetricKind::perplexity}}, 4);
  EXPECT_TRUE(perplexity.needs_cross_entropies());
  EXPECT_FALSE(perplexity.needs_predictions() || perplexity.needs_places());
  EXPECT_TRUE(ClassMetrics({{MetricKind::top, 3}}, 4).needs_places());
  EXPECT_TRUE(ClassMetrics({{MetricKind::f1_macro}}, 4).needs_predictions());
  EXPECT_THAT(result_of({{}, 4}, {k_labels, k_predicted}).metrics, IsEmpty());
}

}  // namespace
}  // namespace onebatch
