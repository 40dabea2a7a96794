#include "trainer/plan/plan_report.hpp"

#include <gmock/gmock.h>

namespace onebatch {
namespace {

using testing::HasSubstr;

Plan example() {
  Plan plan;
  plan.global_batch_size = 99;
  plan.predicted_step_seconds = 0.01;
  plan.equal_split_seconds = 0.0175;
  plan.ranks = {{0, "RTX 3090", 81, {{17, 1}, {32, 2}}, {}, 0.01, 0.0},
                {1, "RTX 2080 Ti", 18, {{18, 1}}, {}, 0.008, 0.2},
                {2, "old", 0, {}, {}, 0.0, 1.0}};
  plan.notes = {"rank 2 gets no samples"};
  return plan;
}

TEST(PlanReportTest, every_rank_and_comparison_is_there) {
  const std::string text = plan_table(example());
  EXPECT_THAT(text, HasSubstr("global batch of 99"));
  EXPECT_THAT(text, HasSubstr("1x17 + 2x32"));
  EXPECT_THAT(text, HasSubstr("none"));
  EXPECT_THAT(text, HasSubstr("20.0 %"));
  EXPECT_THAT(text, HasSubstr("17.50 ms (1.75x)"));
  EXPECT_THAT(text, HasSubstr("a split by memory does not fit"));
  EXPECT_THAT(text, HasSubstr("note: rank 2 gets no samples"));
}

TEST(PlanReportTest, splits_that_were_not_looked_at_are_not_said_not_to_fit) {
  Plan plan = example();
  plan.equal_split_seconds.reset();
  EXPECT_THAT(plan_table(plan), Not(HasSubstr("does not fit")));
}

TEST(PlanReportTest, the_short_batch_follows) {
  EXPECT_THAT(plan_table(EpochPlan{example(), example()}), HasSubstr("last, short batch"));
  EXPECT_THAT(plan_table(EpochPlan{example(), std::nullopt}), Not(HasSubstr("last, short batch")));
}

}  // namespace
}  // namespace onebatch
