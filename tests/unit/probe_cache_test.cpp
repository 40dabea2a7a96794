#include "trainer/probe/probe_cache.hpp"

#include "scratch_folder.hpp"

#include <gtest/gtest.h>

#include <fstream>

namespace onebatch {
namespace {

RankProfile example() {
  RankProfile rank;
  rank.max_micro_batch = 30;
  rank.largest_micro_batch = 32;
  rank.step_seconds = {{1, 0.5}, {32, 2.0}};
  return rank;
}

TEST(ProbeCacheTest, an_answer_comes_back) {
  const testing::ScratchFolder folder;
  const ProbeCache cache(folder / "new", "a model on a card");
  EXPECT_FALSE(cache.load().has_value());
  EXPECT_EQ(cache.store(example()), "");
  ASSERT_TRUE(cache.load().has_value());
  EXPECT_EQ(cache.load()->largest_micro_batch, 32);
  EXPECT_EQ(cache.load()->step_seconds.size(), 2U);
}

TEST(ProbeCacheTest, another_identity_is_another_answer) {
  const testing::ScratchFolder folder;
  EXPECT_EQ(ProbeCache(folder / "cache", "one").store(example()), "");
  EXPECT_FALSE(ProbeCache(folder / "cache", "two").load().has_value());
}

TEST(ProbeCacheTest, a_damaged_file_is_no_answer) {
  const testing::ScratchFolder folder;
  const ProbeCache cache(folder / "cache", "one");
  EXPECT_EQ(cache.store(example()), "");
  const auto file = std::filesystem::directory_iterator(folder / "cache")->path();
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  EXPECT_FALSE(cache.load().has_value());
  std::ofstream(file) << R"({"identity": "one", "profile": {"ranks": []}})";
  EXPECT_FALSE(cache.load().has_value());
}

TEST(ProbeCacheTest, a_file_that_is_nested_without_end_is_no_answer) {
  const testing::ScratchFolder folder;
  const ProbeCache cache(folder / "cache", "one");
  EXPECT_EQ(cache.store(example()), "");
  const auto file = std::filesystem::directory_iterator(folder / "cache")->path();
  const std::size_t depth = 1'000'000;
  testing::write_bytes(file,
                       R"({"identity": "one", "profile": )" + std::string(depth, '[') + std::string(depth, ']') + "}");
  EXPECT_FALSE(cache.load().has_value());
}

TEST(ProbeCacheTest, what_cannot_be_kept_is_said) {
  EXPECT_NE(ProbeCache("", "one").store(example()), "");
  EXPECT_NE(ProbeCache("/dev/null/folder", "one").store(example()), "");
  EXPECT_FALSE(ProbeCache("/dev/null/folder", "one").load().has_value());
}

}  // namespace
}  // namespace onebatch
