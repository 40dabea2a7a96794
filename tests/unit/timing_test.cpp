#include "trainer/probe/timing.hpp"

#include <gtest/gtest.h>

namespace onebatch {
namespace {

TEST(TimingTest, the_median_of_each_size_is_typical) {
  const auto typical = typical_times({{1, {3.0, 1.0, 2.0}}, {8, {5.0}}});
  ASSERT_EQ(typical.size(), 2U);
  EXPECT_DOUBLE_EQ(typical[0].seconds, 2.0);
  EXPECT_DOUBLE_EQ(typical[1].seconds, 5.0);
}

TEST(TimingTest, calm_times_are_not_spoiled) {
  EXPECT_LT(spread_of({{8, {1.0, 1.01, 0.99, 1.02}}, {64, {8.0, 8.1, 7.9, 8.05}}}), k_spoiled_spread);
  EXPECT_LT(spread_of({{64, {8.0, 8.1, 8.0, 8.0, 20.0, 8.1, 8.0, 8.0}}}), k_spoiled_spread)
      << "one hiccup is what medians are for";
}

TEST(TimingTest, a_busy_machine_is_noticed) {
  EXPECT_GT(spread_of({{64, {8.0, 12.0, 8.1, 13.0, 8.0, 12.5}}}), k_spoiled_spread);
  EXPECT_GT(spread_of({{32, {9.0, 9.0, 9.0}}, {64, {7.0, 7.0, 7.0}}}), k_spoiled_spread)
      << "more samples do not take less time";
}

TEST(TimingTest, small_sizes_may_waver) {
  EXPECT_LT(spread_of({{1, {0.1, 0.3, 0.1, 0.5}}, {64, {8.0, 8.0, 8.0, 8.0}}}), k_spoiled_spread);
}

TEST(TimingTest, jitter_is_the_upper_quartile_over_the_median) {
  EXPECT_NEAR(jitter_of({{64, {8.0, 8.4, 8.0, 8.8, 8.0, 8.0, 8.8, 8.8}}}), 0.4 / 8.4, 1e-12);
  EXPECT_NEAR(jitter_of({{32, {4.0, 4.0, 4.0, 4.4}}, {64, {8.0, 8.0, 8.0, 8.8}}}), 0.1, 1e-12)
      << "of all sizes together";
  EXPECT_EQ(jitter_of({{1, {0.1, 0.3, 0.5}}, {64, {8.0, 8.0, 8.0, 8.0}}}), 0.0) << "small sizes may waver";
  EXPECT_EQ(jitter_of({{64, {8.0, 9.0}}}), 0.0) << "two times say nothing";
}

}  // namespace
}  // namespace onebatch
