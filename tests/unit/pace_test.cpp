#include "trainer/optim/pace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onebatch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// 100 samples in batches of 30: three full batches and one of 10.
Configuration of(std::optional<std::int64_t> epochs, std::optional<std::int64_t> max_steps) {
  Configuration c;
  c.run.epochs = epochs;
  c.run.max_steps = max_steps;
  c.batch.global_batch_size = 30;
  c.optimizer.lr = 1.0;
  return c;
}

SampleOrder order(const OrderPosition& start = {}, LastBatch last = LastBatch::exact) {
  return {1, 100, 30, last, start};
}

std::int64_t steps(std::optional<std::int64_t> epochs, std::optional<std::int64_t> max_steps) {
  return Pace(of(epochs, max_steps), order(), 0).total_steps();
}

TEST(PaceTest, of_epochs_and_steps_the_one_that_ends_first) {
  EXPECT_EQ(steps(3, std::nullopt), 12);
  EXPECT_EQ(steps(std::nullopt, 5), 5);
  EXPECT_EQ(steps(3, 5), 5);
  EXPECT_EQ(steps(3, 12), 12);
  EXPECT_EQ(steps(3, 13), 12);
  EXPECT_EQ(steps(1, 1000000), 4);
}

TEST(PaceTest, a_run_that_goes_on_ends_where_it_would_have) {
  EXPECT_EQ(Pace(of(3, 1000), order({1, 60, 160}), 6).total_steps(), 12);
  EXPECT_EQ(Pace(of(3, 7), order({1, 60, 160}), 6).total_steps(), 7);
  EXPECT_EQ(Pace(of(1, 1000), order({1, 60, 160}), 6).total_steps(), 6) << "its epochs are done";
}

TEST(PaceTest, which_of_both_ends_it_is_said) {
  EXPECT_THAT(Pace(of(3, std::nullopt), order(), 0).notes(), IsEmpty());
  EXPECT_THAT(Pace(of(3, 13), order(), 0).notes(),
              ElementsAre("the run ends with run.epochs = 3, after step 12: before run.max_steps = 13"));
  EXPECT_THAT(Pace(of(3, 5), order(), 0).notes(),
              ElementsAre("the run ends with run.max_steps = 5: run.epochs = 3 would be 12 steps"));
}

TEST(PaceTest, schedules_see_where_the_run_really_ends) {
  Configuration c = of(3, 5);
  c.schedule.kind = "linear";
  const Pace pace(c, order(), 0);
  EXPECT_DOUBLE_EQ(pace.learning_rate(0), 1.0);
  EXPECT_DOUBLE_EQ(pace.learning_rate(2), 0.5);
  EXPECT_DOUBLE_EQ(pace.learning_rate(4), 0.0);
}

TEST(PaceTest, warmup_in_epochs_or_as_a_share_is_one_in_whole_steps) {
  Configuration c = of(3, std::nullopt);
  c.schedule.warmup_epochs = 0.5;
  EXPECT_EQ(Pace(c, order(), 0).warmup_steps(), 2);
  EXPECT_DOUBLE_EQ(Pace(c, order(), 0).learning_rate(0), 0.5);
  EXPECT_EQ(Pace(c, order({1, 60, 160}), 6).warmup_steps(), 2) << "the same in mid-epoch";
  EXPECT_EQ(Pace(c, order({}, LastBatch::drop), 0).warmup_steps(), 2) << "1.5 to the nearest";
  c.schedule.warmup_epochs = 1e9;
  EXPECT_EQ(Pace(c, order(), 0).warmup_steps(), 4000000000);
  c.schedule.warmup_epochs = 0.0;
  c.schedule.warmup_fraction = 0.07;
  c.run.epochs = 25;
  EXPECT_EQ(Pace(c, order(), 0).warmup_steps(), 7) << "of 100, although 0.07 * 100 is a little more";
  EXPECT_EQ(Pace(c, order({1, 60, 160}), 6).warmup_steps(), 7) << "the same in mid-run";
}

TEST(PaceTest, the_rate_is_scaled_with_the_batch_on_request) {
  Configuration c = of(3, std::nullopt);
  c.optimizer.lr_batch_size = 120;
  EXPECT_DOUBLE_EQ(Pace(c, order(), 0).learning_rate(0), 1.0);
  c.optimizer.lr_scaling = LrScaling::linear;
  EXPECT_DOUBLE_EQ(Pace(c, order(), 0).learning_rate(0), 0.25);
  EXPECT_THAT(Pace(c, order(), 0).notes(), ElementsAre(HasSubstr("is meant for batches of 120: at 30 it is 0.25")));
  c.optimizer.lr_scaling = LrScaling::square_root;
  EXPECT_DOUBLE_EQ(Pace(c, order(), 0).learning_rate(0), 0.5);
  EXPECT_THAT(Pace(c, order(), 0).notes(), ElementsAre(HasSubstr("\"sqrt\"")));
}

}  // namespace
}  // namespace onebatch
