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

TEST(NearestTest, keys_are_known_by_their_last_part) {
  const std::vector<std::string> keys = {"data.kind",  "model.kind", "loss.kind",  "optimizer.lr",
                                         "run.epochs", "run.seed",   "model.depth"};
  const std::vector<std::string> sections = {"data", "log", "model", "optimizer", "run"};
  const auto meant = [&](const std::string& path) { return meant_keys(path, keys, sections); };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(meant("lr"), Keys{"optimizer.lr"});
  EXPECT_EQ(meant("train.epochs"), Keys{"run.epochs"});
  EXPECT_EQ(meant("modle.kind"), Keys{"model.kind"});
  EXPECT_EQ(meant("kind").size(), 3U);
  EXPECT_EQ(meant("optimizer.lrr"), Keys{"optimizer.lr"});
  EXPECT_EQ(meant("modle"), Keys{"model"});
  EXPECT_EQ(meant("epoch"), Keys{"run.epochs"});
  EXPECT_EQ(meant("completely.different"), Keys{});
}

}  // namespace
}  // namespace onebatch::launch
