#include "comm/incident.hpp"

#include <gtest/gtest.h>

namespace onebatch::comm {
namespace {

TEST(OperationLogTest, keeps_the_last_ones_in_their_order) {
  OperationLog log;
  for (std::uint64_t i = 1; i <= 40; ++i) {
    log.begin(i, "all_reduce", 8 * i);
    if (i < 40) log.end();
  }
  const auto kept = log.read();
  ASSERT_EQ(kept.size(), OperationLog::k_kept);
  EXPECT_EQ(kept.front().sequence, 9);
  EXPECT_EQ(kept.back().sequence, 40);
  EXPECT_EQ(kept.back().bytes, 320);
  EXPECT_TRUE(kept[30].ended);
  EXPECT_FALSE(kept.back().ended);
}

TEST(OperationLogTest, is_empty_before_the_first) {
  EXPECT_TRUE(OperationLog().read().empty());
}

TEST(ThreadStacksTest, text_is_read_back) {
  const std::vector<ThreadStack> stacks = {{12, "onebatch", {"f(int)+0x1", "main+0x2"}}, {13, "a (worker)", {}}};
  const auto again = parse_thread_stacks(to_text(stacks));
  ASSERT_EQ(again.size(), 2);
  EXPECT_EQ(again[0].id, 12);
  EXPECT_EQ(again[0].frames, stacks[0].frames);
  EXPECT_EQ(again[1].name, "a (worker)");
  EXPECT_TRUE(parse_thread_stacks("nothing of the kind\n  at all").empty());
}

TEST(ThreadStacksTest, what_cannot_be_read_says_why) {
  const auto stacks = ask_for_thread_stacks(1 << 30, 2.0);
  ASSERT_EQ(stacks.size(), 1);
  EXPECT_TRUE(stacks[0].frames.at(0).starts_with("no stacks: "));
}

}  // namespace
}  // namespace onebatch::comm
