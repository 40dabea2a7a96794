#include "trainer/optim/schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace onebatch {
namespace {

ScheduleConfiguration of(const std::string& kind, std::int64_t warmup = 0) {
  ScheduleConfiguration schedule;
  schedule.kind = kind;
  schedule.warmup_steps = warmup;
  return schedule;
}

TEST(ScheduleTest, constant_stays) {
  for (const std::int64_t step : {0, 5, 99}) EXPECT_DOUBLE_EQ(learning_rate(of("constant"), 0.1, step, 100), 0.1);
}

TEST(ScheduleTest, warmup_rises_to_the_full_rate) {
  const auto schedule = of("constant", 4);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.0, 0, 100), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.0, 3, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.0, 4, 100), 1.0);
}

TEST(ScheduleTest, linear_and_cosine_meet_their_ends_and_middle) {
  for (const char* kind : {"linear", "cosine"}) {
    auto schedule = of(kind);
    schedule.final_lr_fraction = 0.1;
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 2.0, 0, 101), 2.0);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 2.0, 50, 101), 1.1);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 2.0, 100, 101), 0.2);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 2.0, 500, 101), 0.2) << "past the end it stays";
  }
  EXPECT_NEAR(learning_rate(of("cosine"), 1.0, 25, 101), 0.5 * (1.0 + std::sqrt(0.5)), 1e-12);
}

TEST(ScheduleTest, steps_cut_by_gamma) {
  auto schedule = of("step", 2);
  schedule.step_size = 10;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.0, 11, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.0, 12, 100), 0.1);
  EXPECT_NEAR(learning_rate(schedule, 1.0, 22, 100), 0.01, 1e-15);
}

TEST(ScheduleTest, runs_of_no_or_one_step_are_cases) {
  for (const char* kind : {"constant", "linear", "cosine", "step"}) {
    EXPECT_DOUBLE_EQ(learning_rate(of(kind), 0.5, 0, 0), 0.5);
    EXPECT_DOUBLE_EQ(learning_rate(of(kind), 0.5, 0, 1), 0.5);
  }
}

}  // namespace
}  // namespace onebatch
