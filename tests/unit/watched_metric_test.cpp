#include "trainer/base/watched_metric.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace onebatch {
namespace {

WatchState of(const std::string& metric, BetterIs better = BetterIs::automatic) {
  return begin_watching({metric, better});
}

TEST(WatchedMetricTest, which_way_is_better_goes_by_the_metric_unless_it_is_said) {
  EXPECT_FALSE(of("loss").greater_is_better);
  EXPECT_TRUE(of("accuracy").greater_is_better);
  EXPECT_TRUE(of("loss", BetterIs::greatest).greater_is_better);
  EXPECT_FALSE(of("accuracy", BetterIs::least).greater_is_better);
}

TEST(WatchedMetricTest, the_first_is_the_best_and_an_equal_one_is_no_better) {
  WatchState state = of("loss");
  EXPECT_TRUE(watch(state, 2.0, 3));
  EXPECT_FALSE(watch(state, 2.0, 6));
  EXPECT_FALSE(watch(state, 2.5, 9));
  EXPECT_EQ(state.without, 2);
  EXPECT_EQ(state.best_step, 3);
  EXPECT_TRUE(watch(state, 1.5, 12));
  EXPECT_EQ(state.best, 1.5);
  EXPECT_EQ(state.best_step, 12);
  EXPECT_EQ(state.without, 0);
}

TEST(WatchedMetricTest, more_may_be_better) {
  WatchState state = of("accuracy");
  EXPECT_TRUE(watch(state, 0.5, 1));
  EXPECT_FALSE(watch(state, 0.4, 2));
  EXPECT_TRUE(watch(state, 0.6, 3));
}

TEST(WatchedMetricTest, better_by_no_more_than_the_least_difference_is_no_better) {
  WatchState state = of("loss");
  watch(state, 2.0, 1, 0.25);
  EXPECT_FALSE(watch(state, 1.75, 2, 0.25));
  EXPECT_EQ(state.best, 2.0) << "or many small gains would never count";
  EXPECT_TRUE(watch(state, 1.5, 3, 0.25));
}

TEST(WatchedMetricTest, what_is_no_finite_number_is_never_the_best) {
  WatchState state = of("accuracy");
  EXPECT_FALSE(watch(state, NAN, 1));
  EXPECT_FALSE(watch(state, HUGE_VAL, 2));
  EXPECT_EQ(state.best, std::nullopt);
  EXPECT_EQ(state.without, 2);
  EXPECT_TRUE(watch(state, 0.1, 3)) << "the first that is a number";
  EXPECT_FALSE(watch(state, NAN, 4));
}

TEST(WatchedMetricTest, another_metric_or_another_way_to_be_better_begins_anew) {
  WatchState state = of("loss");
  watch(state, 2.0, 3);
  EXPECT_EQ(go_on_watching(state, {"loss"}), state);
  EXPECT_EQ(go_on_watching(state, {"loss", BetterIs::least}), state) << "said in another way";
  EXPECT_EQ(go_on_watching(state, {"accuracy"}), of("accuracy"));
  EXPECT_EQ(go_on_watching(state, {"loss", BetterIs::greatest}), of("loss", BetterIs::greatest));
  EXPECT_EQ(go_on_watching(state, {}), WatchState{});
}

}  // namespace
}  // namespace onebatch
