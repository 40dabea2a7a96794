#include "trainer/probe/memory_use.hpp"

#include "trainer/probe/search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onebatch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t k_mebibyte = 1048576;

TEST(MemoryUseTest, trials_tell_activations_and_workspace) {
  // 100 held, 40 of workspace, 3 a sample; the failed trial and the near neighbour say nothing.
  const std::vector<Trial> trials = {{1, true, false, 143, 0.0},
                                     {10, true, false, 170, 0.0},
                                     {50, true, false, 290, 0.0},
                                     {49, true, false, 288, 0.0},
                                     {60, false, true, 300, 0.0}};
  MemoryUse memory;
  add_trials(memory, trials, 100);
  EXPECT_DOUBLE_EQ(memory.activation_bytes_per_sample, 3.0);
  EXPECT_EQ(memory.workspace_bytes, 40);
}

TEST(MemoryUseTest, one_trial_has_no_workspace) {
  MemoryUse memory;
  add_trials(memory, {{4, true, false, 140, 0.0}}, 100);
  EXPECT_DOUBLE_EQ(memory.activation_bytes_per_sample, 10.0);
  EXPECT_EQ(memory.workspace_bytes, 0);
  MemoryUse none;
  add_trials(none, {{4, false, true, 140, 0.0}}, 100);
  EXPECT_DOUBLE_EQ(none.activation_bytes_per_sample, 0.0);
}

TEST(MemoryUseTest, what_does_not_fit_is_explained_by_kind) {
  RankProfile rank;
  rank.device = "RTX 2080";
  rank.memory_limit_bytes = 100 * k_mebibyte;
  rank.memory.parameters_bytes = 20 * k_mebibyte;
  rank.memory.gradients_bytes = 20 * k_mebibyte;
  rank.memory.optimizer_bytes = 40 * k_mebibyte;
  const std::string text = too_large_text(rank, 2, true);
  EXPECT_THAT(text, HasSubstr("not even 2 sample(s) fit on RTX 2080 (limit 100 MiB)"));
  EXPECT_THAT(text, HasSubstr("parameters 20.0 MiB, gradients 20.0 MiB, optimizer state 40.0 MiB"));
  EXPECT_THAT(text, HasSubstr("the 20.0 MiB that are left"));
  EXPECT_THAT(text, HasSubstr("without momentum (frees 40.0 MiB)"));
  EXPECT_THAT(text, Not(HasSubstr("buffers")));
  EXPECT_THAT(text, HasSubstr("memory.recompute"));
  EXPECT_THAT(too_large_text(rank, 2, false), Not(HasSubstr("memory.recompute")));
  rank.memory_limit_bytes = 50 * k_mebibyte;
  EXPECT_THAT(too_large_text(rank, 1, true), HasSubstr("that alone is too much"));
}

TEST(MemoryUseTest, a_host_holds_what_all_its_ranks_keep_or_nothing_of_it) {
  EXPECT_THAT(hosts_hold({{"a", 40, 100}, {"a", 40, 110}, {"b", 79, 100}, {"c", 0, 1}}),
              ElementsAre(true, true, true, true));
  EXPECT_THAT(hosts_hold({{"a", 41, 100}, {"a", 40, 110}, {"b", 79, 100}}), ElementsAre(false, false, true));
  EXPECT_THAT(hosts_hold({{"a", 40, 110}, {"a", 40, 99}}), ElementsAre(false, false));  // a container's limit
}

TEST(SearchTest, sizes_that_kernels_like_cost_little) {
  EXPECT_EQ(round_for_kernels(1000, 1), 960);
  EXPECT_EQ(round_for_kernels(627, 1), 608);
  EXPECT_EQ(round_for_kernels(64, 1), 64);
  EXPECT_EQ(round_for_kernels(17, 1), 17) << "16 would cost 5.9 %";
  EXPECT_EQ(round_for_kernels(21, 21), 21);
  EXPECT_EQ(round_for_kernels(1, 1), 1);
  for (std::int64_t size = 1; size < 3000; ++size) {
    const std::int64_t rounded = round_for_kernels(size, 1);
    EXPECT_GT(static_cast<double>(rounded), 0.95 * static_cast<double>(size)) << size;
    EXPECT_LE(rounded, size);
  }
}

}  // namespace
}  // namespace onebatch
