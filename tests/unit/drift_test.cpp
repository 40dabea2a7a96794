#include "trainer/plan/drift.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace onebatch {
namespace {

const DriftWindow& k_soon = k_drift_windows[0];
const DriftWindow& k_later = k_drift_windows[1];

TEST(DriftWatchTest, needs_a_whole_window_after_the_first_step) {
  DriftWatch watch;
  watch.begin({1.0, 1.0});
  for (std::size_t i = 0; i < k_soon.steps; ++i) {
    watch.add({1.0, 3.0});
    EXPECT_FALSE(watch.drift(k_soon).has_value());
  }
  watch.add({1.0, 3.0});
  const auto drift = watch.drift(k_soon);
  ASSERT_TRUE(drift.has_value());
  EXPECT_DOUBLE_EQ(drift->typical[1], 3.0);
  EXPECT_DOUBLE_EQ(drift->least[1], 3.0);
  EXPECT_DOUBLE_EQ(drift->least[0], 1.0);
}

TEST(DriftWatchTest, single_slow_steps_are_no_drift) {
  DriftWatch watch;
  watch.begin({1.0, 1.0});
  for (int i = 0; i < 500; ++i) {
    watch.add({i % 5 == 0 ? 4.0 : 1.0, i % 7 == 0 ? 2.0 : 1.0});
    EXPECT_FALSE(watch.drift(k_soon).has_value()) << i;
  }
}

TEST(DriftWatchTest, noise_around_the_table_is_no_drift) {
  std::mt19937 generator(1);
  std::normal_distribution<double> noise(1.0, 0.1);
  DriftWatch watch;
  watch.begin({0.1, 0.2, 0.0});
  for (int i = 0; i < 5000; ++i) {
    watch.add({0.1 * noise(generator), 0.2 * noise(generator), 0.0});
    const auto drift = watch.drift(k_soon);
    if (!drift) continue;
    for (const double least : drift->least) EXPECT_NEAR(least, 1.0, 0.1) << "what noise leaves is small";
    EXPECT_DOUBLE_EQ(drift->typical[2], 1.0) << "a rank without work tells nothing";
  }
}

TEST(DriftWatchTest, a_rank_that_became_faster_is_seen_too) {
  DriftWatch watch;
  watch.begin({1.0});
  for (int i = 0; i < 20; ++i) watch.add({0.5 + 0.01 * (i % 3)});
  ASSERT_TRUE(watch.drift(k_soon).has_value());
  EXPECT_LT(watch.drift(k_soon)->least[0], 0.55);
  watch.begin({0.5});
  EXPECT_FALSE(watch.drift(k_soon).has_value()) << "a new plan begins anew";
}

TEST(DriftWatchTest, a_burst_of_quick_steps_is_no_drift) {
  DriftWatch watch;
  watch.begin({0.001});
  for (int i = 0; i < 200; ++i) {
    watch.add({0.003});
    EXPECT_FALSE(watch.drift(k_soon).has_value()) << "0.6 s are too little";
  }
  for (int i = 0; i < 100; ++i) watch.add({0.003});
  EXPECT_TRUE(watch.drift(k_soon).has_value());
}

TEST(DriftTest, repeated_plans_have_to_win_more) {
  EXPECT_TRUE(worth_a_new_plan(1.0, 0.96, 0, k_later));
  EXPECT_TRUE(worth_a_new_plan(1.0, 0.96, 1, k_later)) << "one correction is free";
  EXPECT_FALSE(worth_a_new_plan(1.0, 0.96, 2, k_later));
  EXPECT_FALSE(worth_a_new_plan(1.0, 0.96, 0, k_soon)) << "what was seen for a moment only has to win much";
  EXPECT_TRUE(worth_a_new_plan(1.0, 0.4, 20, k_later)) << "what halves the step is always worth it";
  EXPECT_FALSE(worth_a_new_plan(0.0, 0.0, 0, k_later));
}

// Two ranks that play given speeds while the plan follows: it must settle, and never go back and forth where tables are wrong.
TEST(DriftTest, plans_do_not_oscillate_where_tables_are_wrong) {
  const CostTable said({{1, 0.01}, {64, 0.64}});
  // In truth the second rank has a high constant: a factor measured at one size is wrong at another.
  const CostTable truth[] = {CostTable({{1, 0.01}, {64, 0.64}}), CostTable({{1, 0.30}, {64, 0.80}})};
  std::vector<RankCost> costs(2, RankCost{"d", said, 1, 64, std::nullopt, 0.0});
  Plan plan = plan_global_batch(100, costs);
  DriftWatch watch;
  const auto begin = [&] { watch.begin({plan.ranks[0].predicted_seconds, plan.ranks[1].predicted_seconds}); };
  begin();
  std::vector<int> replans;
  for (int step = 1; step <= 2000; ++step) {
    std::vector<double> seconds;
    for (std::size_t r = 0; r < 2; ++r) {
      Plan alone;
      alone.ranks = {plan.ranks[r]};
      seconds.push_back(seconds_under(alone, {{"d", truth[r], 1, 64, std::nullopt, 0.0}}));
    }
    watch.add(seconds);
    if (step % 4 != 0) continue;
    for (const DriftWindow& window : k_drift_windows) {
      const auto drift = watch.drift(window);
      if (!drift) continue;
      auto careful = costs;
      for (std::size_t r = 0; r < 2; ++r) careful[r].table = scaled(costs[r].table, drift->least[r]);
      const Plan then = plan_global_batch(100, careful);
      const auto recent = std::count_if(replans.begin(), replans.end(), [&](int when) { return when > step - 200; });
      if (!worth_a_new_plan(seconds_under(plan, careful), seconds_under(then, careful), static_cast<int>(recent), window)) continue;
      for (std::size_t r = 0; r < 2; ++r) costs[r].table = scaled(costs[r].table, drift->typical[r]);
      plan = plan_global_batch(100, costs);
      begin();
      replans.push_back(step);
      break;
    }
  }
  EXPECT_GE(replans.size(), 1U);
  EXPECT_LE(replans.size(), 6U);
  EXPECT_LT(replans.empty() ? 0 : replans.back(), 600);
}

}  // namespace
}  // namespace onebatch
