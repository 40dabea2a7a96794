#include "trainer/plan/plan_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onebatch {
namespace {

using ::testing::HasSubstr;

RankPlan rank_of(int rank, std::vector<MicroBatchRun> runs) {
  RankPlan plan;
  plan.rank = rank;
  for (const auto& [size, count] : runs) plan.samples += size * count;
  plan.micro_batches = std::move(runs);
  return plan;
}

Plan plan_of(std::int64_t batch, std::vector<RankPlan> ranks) {
  Plan plan;
  plan.global_batch_size = batch;
  plan.ranks = std::move(ranks);
  return plan;
}

// 100 samples over two ranks, and 20 at the end of 1,020.
EpochPlan good_plan() {
  return {plan_of(100, {rank_of(0, {{20, 3}}), rank_of(1, {{20, 2}})}),
          plan_of(20, {rank_of(0, {{20, 1}}), rank_of(1, {})})};
}

PlanGround ground_of(int world = 2) {
  PlanGround ground;
  ground.batch.global_batch_size = 100;
  ground.dataset_size = 1020;
  ground.world_size = world;
  return ground;
}

TEST(PlanCheckTest, the_plan_of_this_run_is_followed) {
  EXPECT_EQ(why_not_followed(good_plan(), ground_of()), "");
  PlanGround ground = ground_of();
  ground.batch.micro_batch_size = {20};
  ground.grain = 20;
  EXPECT_EQ(why_not_followed(good_plan(), ground), "");
  ground.batch.micro_batch_size = {30, 20};
  ground.grain = 0;
  EXPECT_EQ(why_not_followed(good_plan(), ground), "");
  EpochPlan no_last = good_plan();
  no_last.last.reset();
  EXPECT_EQ(why_not_followed(no_last, ground_of()), "") << "the short batch is planned when it comes";
}

TEST(PlanCheckTest, a_plan_of_another_world_is_named) {
  EXPECT_EQ(why_not_followed(good_plan(), ground_of(1)), "is for 2 rank(s), but 1 were started")
      << "half of each batch would be left out";
  EXPECT_THAT(why_not_followed(good_plan(), ground_of(3)), HasSubstr("is for 2 rank(s), but 3"));
  EpochPlan last = good_plan();
  last.last->ranks.pop_back();
  EXPECT_THAT(why_not_followed(last, ground_of()), HasSubstr("for the last batch is for 1 rank(s), but 2"));
  EpochPlan swapped = good_plan();
  std::swap(swapped.full.ranks[0], swapped.full.ranks[1]);
  EXPECT_THAT(why_not_followed(swapped, ground_of()), HasSubstr("lists rank 1 in the place of rank 0"));
}

TEST(PlanCheckTest, another_batch_or_other_data_are_named) {
  PlanGround ground = ground_of();
  ground.batch.global_batch_size = 120;
  EXPECT_THAT(why_not_followed(good_plan(), ground),
              HasSubstr("is for a global batch of 100, but batch.global_batch_size is 120"));
  ground = ground_of();
  ground.dataset_size = 1030;
  EXPECT_THAT(why_not_followed(good_plan(), ground),
              HasSubstr("has a last batch of 20 samples, but this run's has 30"));
  ground.batch.last_batch = LastBatch::drop;
  EXPECT_EQ(why_not_followed(good_plan(), ground), "");
  ground = ground_of();
  ground.dataset_size = 1000;
  EXPECT_EQ(why_not_followed(good_plan(), ground), "") << "there is no short batch";
}

TEST(PlanCheckTest, what_batch_fixes_is_kept_to) {
  PlanGround ground = ground_of();
  ground.batch.micro_batch_size = {16};
  EXPECT_THAT(why_not_followed(good_plan(), ground),
              HasSubstr("gives rank 0 micro-batches of 20, but batch.micro_batch_size is 16"));
  ground.batch.micro_batch_size = {30, 16};
  EXPECT_THAT(why_not_followed(good_plan(), ground), HasSubstr("gives rank 1 micro-batches of 20"));
  ground = ground_of();
  ground.batch.gradient_accumulation_steps = 3;
  EXPECT_THAT(why_not_followed(good_plan(), ground),
              HasSubstr("gives rank 1 2 micro-batches, but batch.gradient_accumulation_steps is 3"));
  ground = ground_of();
  ground.grain = 10;
  EXPECT_THAT(why_not_followed(good_plan(), ground), HasSubstr("calls of 10"));
}

TEST(PlanCheckTest, bitwise_has_one_smaller_call_at_the_batchs_end) {
  PlanGround ground = ground_of();
  ground.grain = 30;
  const EpochPlan good{plan_of(100, {rank_of(0, {{30, 2}}), rank_of(1, {{30, 1}, {10, 1}})}), std::nullopt};
  EXPECT_EQ(why_not_followed(good, ground), "");
  const EpochPlan early{plan_of(100, {rank_of(0, {{30, 1}, {10, 1}}), rank_of(1, {{30, 2}})}), std::nullopt};
  EXPECT_THAT(why_not_followed(early, ground), HasSubstr("gives rank 0 micro-batches of 10"));
}

TEST(PlanCheckTest, micro_steps_of_all_ranks_are_alike_in_number) {
  PlanGround ground = ground_of();
  ground.lock_step = true;
  EXPECT_THAT(why_not_followed(good_plan(), ground),
              HasSubstr("gives rank 1 another number of micro-batches than rank 0"));
  const EpochPlan steps{plan_of(100, {rank_of(0, {{50, 2}}), rank_of(1, {{0, 2}})}), std::nullopt};
  EXPECT_EQ(why_not_followed(steps, ground), "");
  EXPECT_THAT(why_not_followed(steps, ground_of()), HasSubstr("gives rank 1 micro-batches without samples"));
}

}  // namespace
}  // namespace onebatch
