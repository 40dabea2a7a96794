#include "launch/nearest.hpp"

#include <gtest/gtest.h>

namespace onebatch::launch {
namespace {

TEST(NearestTest, distances_are_levenshteins) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("same", "same"), 0U);
}

TEST(NearestTest, the_meant_word_is_found_and_nonsense_is_not) {
  const std::vector<std::string> known = {"optimizer.lr", "optimizer.kind", "run.seed"};
  EXPECT_EQ(nearest("optimizer.lrr", known), "optimizer.lr");
  EXPECT_EQ(nearest("run.sed", known), "run.seed");
  EXPECT_FALSE(nearest("completely.different", known).has_value());
}

}  // namespace
}  // namespace onebatch::launch
