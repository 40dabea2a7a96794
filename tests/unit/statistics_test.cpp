#include "comm/statistics.hpp"

#include "comm/stopwatch.hpp"

#include <gtest/gtest.h>

#include <random>

namespace onebatch::comm {
namespace {

TEST(StatisticsTest, the_median_is_in_the_middle) {
  EXPECT_EQ(median({7.0}), 7.0);
  EXPECT_EQ(median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(median({4.0, 1.0, 3.0, 2.0}), 3.0) << "the upper of two";
}

TEST(StatisticsTest, a_quantile_has_its_part_of_all_values_below_it) {
  std::mt19937 random(3);
  std::vector<double> values;
  for (int i = 0; i < 40; ++i) values.push_back(i);
  std::ranges::shuffle(values, random);
  EXPECT_EQ(quantile(values, 0.0), 0.0);
  EXPECT_EQ(quantile(values, 0.25), 10.0);
  EXPECT_EQ(quantile(values, 0.75), 30.0);
  EXPECT_EQ(quantile(values, 1.0), 39.0);
}

TEST(StopwatchTest, runs_from_where_it_is_made) {
  const Stopwatch first;
  const Stopwatch second;
  const double later = second.seconds();
  EXPECT_GE(later, 0.0);
  EXPECT_GE(first.seconds(), later);
}

}  // namespace
}  // namespace onebatch::comm
