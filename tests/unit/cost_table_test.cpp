#include "trainer/base/cost_table.hpp"

#include "trainer/base/error.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace onebatch {
namespace {

TEST(CostTableTest, between_points_is_linear) {
  const CostTable table({{10, 1.0}, {20, 3.0}});
  EXPECT_DOUBLE_EQ(table.seconds(15), 2.0);
  EXPECT_DOUBLE_EQ(table.seconds(10), 1.0);
  EXPECT_DOUBLE_EQ(table.seconds(20), 3.0);
}

TEST(CostTableTest, outside_follows_the_nearest_line) {
  const CostTable table({{10, 1.0}, {20, 1.5}, {30, 3.5}});
  EXPECT_DOUBLE_EQ(table.seconds(4), 0.7);
  EXPECT_DOUBLE_EQ(table.seconds(40), 5.5);
}

TEST(CostTableTest, below_the_first_point_is_never_negative) {
  const CostTable table({{10, 1.0}, {20, 3.0}});
  EXPECT_DOUBLE_EQ(table.seconds(1), 0.0);
  EXPECT_DOUBLE_EQ(table.seconds(6), 0.2);
}

TEST(CostTableTest, falling_times_become_the_running_maximum) {
  const CostTable table({{30, 2.0}, {10, 3.0}, {20, 1.0}, {40, 5.0}});
  EXPECT_DOUBLE_EQ(table.seconds(20), 3.0);
  EXPECT_DOUBLE_EQ(table.seconds(30), 3.0);
  EXPECT_DOUBLE_EQ(table.seconds(35), 4.0);
}

TEST(CostTableTest, one_point_holds_for_every_size) {
  const CostTable table({{8, 0.25}});
  for (const std::int64_t size : {1, 8, 1000}) EXPECT_DOUBLE_EQ(table.seconds(size), 0.25);
}

TEST(CostTableTest, size_zero_takes_no_time) {
  EXPECT_DOUBLE_EQ(CostTable({{1, 1.0}}).seconds(0), 0.0);
}

TEST(CostTableTest, unusable_tables_are_refused) {
  EXPECT_THROW(CostTable({}), UserError);
  EXPECT_THROW(CostTable({{0, 1.0}}), UserError);
  EXPECT_THROW(CostTable({{1, -1.0}}), UserError);
  EXPECT_THROW(CostTable({{1, std::nan("")}}), UserError);
  EXPECT_THROW(CostTable({{1, INFINITY}}), UserError);
  EXPECT_THROW(CostTable({{4, 1.0}, {4, 2.0}}), UserError);
}

}  // namespace
}  // namespace onebatch
