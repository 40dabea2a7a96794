#include "launch/live_line.hpp"

#include <gtest/gtest.h>

namespace onebatch::launch {
namespace {

const std::vector<LivePart> k_parts = {{"####....", 0}, {"step 3/9", 6}, {"loss 0.5", 5}, {"", 9}, {"0:12 left", 4}};

TEST(LiveLineTest, all_stand_side_by_side_where_there_is_room) {
  EXPECT_EQ(fitted(k_parts, 200), "####....  step 3/9  loss 0.5  0:12 left");
  EXPECT_EQ(fitted(k_parts, 39), "####....  step 3/9  loss 0.5  0:12 left");
}

TEST(LiveLineTest, the_lightest_go_first) {
  EXPECT_EQ(fitted(k_parts, 38), "step 3/9  loss 0.5  0:12 left");
  EXPECT_EQ(fitted(k_parts, 28), "step 3/9  loss 0.5");
  EXPECT_EQ(fitted(k_parts, 17), "step 3/9");
}

TEST(LiveLineTest, what_is_left_is_cut_between_characters) {
  EXPECT_EQ(fitted(k_parts, 5), "step ");
  EXPECT_EQ(fitted({{"3 µs µ", 1}}, 4), "3 µs");
  EXPECT_EQ(fitted({{"3 µs", 1}}, 3), "3 µ");
  EXPECT_EQ(fitted({{"abc", 1}}, 0), "");
}

TEST(LiveLineTest, nothing_is_nothing) {
  EXPECT_EQ(fitted({}, 80), "");
  EXPECT_EQ(fitted({{"", 1}}, 80), "");
}

TEST(LiveLineTest, a_character_is_a_column) {
  EXPECT_EQ(width_of("µs"), 2U);
}

}  // namespace
}  // namespace onebatch::launch
