#include "trainer/plan/drift.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace onebatch {
namespace {

const DriftWindow& k_soon = k_drift_windows[0];
const DriftWindow& k_later = k_drift_windows[1];
const DriftWindow& k_last = k_drift_windows[2];

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
  for (int i = 0; i < 180; ++i) {
    watch.add({0.003});
    EXPECT_FALSE(watch.drift(k_soon).has_value()) << "0.54 s are too little";
  }
  for (int i = 0; i < 100; ++i) watch.add({0.003});
  EXPECT_TRUE(watch.drift(k_soon).has_value());
}

// Steps of 0.2 s; two in three are a fifth slower than the table says, the others a tenth quicker.
TEST(DriftWatchTest, a_longer_window_wants_fewer_steps_to_agree) {
  DriftWatch watch;
  watch.begin({0.2});
  for (int i = 0; i < 100; ++i) watch.add({i % 3 == 0 ? 0.18 : 0.24});
  EXPECT_FALSE(watch.drift(k_soon).has_value());
  const auto later = watch.drift(k_later);
  ASSERT_TRUE(later.has_value());
  EXPECT_NEAR(later->least[0], 1.2, 1e-12);
}

TEST(DriftWatchTest, new_tables_are_settled_by_the_steps_after_them) {
  DriftWatch watch;
  watch.begin({0.1, 0.1});
  for (int i = 0; i < 32; ++i) {
    watch.add({i % 2 == 0 ? 0.09 : 0.094, i % 2 == 0 ? 0.11 : 0.104});
    EXPECT_FALSE(watch.fills(k_settling_window)) << i;
  }
  watch.add({0.09, 0.11});
  ASSERT_TRUE(watch.fills(k_settling_window));
  const auto drift = watch.drift(k_settling_window);
  ASSERT_TRUE(drift.has_value());
  for (std::size_t r = 0; r < 2; ++r) EXPECT_NEAR(drift->least[r], drift->typical[r], 0.07) << "about the median";
  EXPECT_FALSE(watch.fills(k_later));
}

TEST(DriftTest, only_what_is_off_by_little_is_scaled) {
  EXPECT_TRUE(is_correction({{0.9, 1.2, 1.0}, {1.0, 1.0, 1.0}}));
  EXPECT_FALSE(is_correction({{1.0, 1.3}, {1.0, 1.0}}));
  EXPECT_FALSE(is_correction({{0.75, 1.0}, {1.0, 1.0}}));
}

TEST(DriftTest, repeated_plans_have_to_win_more) {
  EXPECT_TRUE(worth_a_new_plan(1.0, 0.96, 0, k_last));
  EXPECT_TRUE(worth_a_new_plan(1.0, 0.96, 1, k_last)) << "one correction is free";
  EXPECT_FALSE(worth_a_new_plan(1.0, 0.96, 2, k_last));
  EXPECT_FALSE(worth_a_new_plan(1.0, 0.96, 0, k_later)) << "what was seen for a shorter time has to win more";
  EXPECT_FALSE(worth_a_new_plan(1.0, 0.8, 0, k_soon)) << "what was seen for a moment only has to win much";
  EXPECT_TRUE(worth_a_new_plan(1.0, 0.4, 20, k_last)) << "what halves the step is always worth it";
  EXPECT_FALSE(worth_a_new_plan(0.0, 0.0, 0, k_last));
}

// Ranks that play given tables, times a speed, under noise, while plans follow what is seen of them.
class SimulatedRanks {
 public:
  SimulatedRanks(const std::vector<CostTable>& said, std::vector<CostTable> truth, std::int64_t batch, double noise,
                 unsigned seed)
      : truth_(std::move(truth)), batch_(batch), noise_(1.0, noise), generator_(seed) {
    for (const CostTable& table : said)
      costs_.push_back({"d", table, 1, table.points().back().size, std::nullopt, 0.0});
    plan_ = plan_global_batch(batch_, costs_);
  }
  void slow_down(std::size_t rank, double factor) { truth_[rank] = scaled(truth_[rank], factor); }
  /// Every rank's speed comes and goes by this part, within some ten seconds.
  void swing(double part) { swing_ = part; }
  void step() {
    ++step_;
    if (!watch_.watches()) watch_.begin(rank_seconds_under(plan_, costs_));
    std::vector<double> seconds = true_seconds();
    for (double& s : seconds) s *= std::clamp(noise_(generator_), 0.5, 1.5);
    if (swing_ > 0.0) apply_swing(seconds);
    watch_.add(seconds);
    for (const LastingDrift& lasting : watch_.detect(step_)) {
      if (!promises_a_new_plan(lasting, plan_, costs_)) continue;
      answer(lasting);
      return;
    }
  }
  /// What all ranks wait, of their time, where nothing is noise.
  [[nodiscard]] double idle() const {
    const std::vector<double> seconds = true_seconds();
    double sum = 0.0;
    for (const double s : seconds) sum += s;
    return 1.0 - sum / (static_cast<double>(seconds.size()) * *std::max_element(seconds.begin(), seconds.end()));
  }
  [[nodiscard]] const std::vector<int>& replans() const { return replans_; }

 private:
  std::vector<double> true_seconds() const {
    std::vector<RankCost> costs = costs_;
    for (std::size_t r = 0; r < costs.size(); ++r) costs[r].table = truth_[r];
    return rank_seconds_under(plan_, costs);
  }
  // An Ornstein-Uhlenbeck process.
  void apply_swing(std::vector<double>& seconds) {
    const double kept = std::exp(-*std::max_element(seconds.begin(), seconds.end()) / 10.0);
    off_now_.resize(seconds.size());
    for (std::size_t r = 0; r < seconds.size(); ++r) {
      off_now_[r] = kept * off_now_[r] + std::sqrt(1.0 - kept * kept) * swing_ * normal_(generator_);
      seconds[r] *= 1.0 + off_now_[r];
    }
  }
  // As DriftFollower does; what is measured anew is off by as much as a table of a few runs may be.
  void answer(const LastingDrift& lasting) {
    const bool corrects = is_correction(lasting.drift);
    for (std::size_t r = 0; r < costs_.size(); ++r)
      costs_[r].table = corrects ? scaled(costs_[r].table, lasting.drift.typical[r])
                                 : scaled(truth_[r], 0.85 + 0.3 * off_(generator_));
    watch_.answered(step_, corrects ? DriftWatch::Answer::tables_scaled : DriftWatch::Answer::tables_measured);
    watch_.stop();
    const Plan then = plan_global_batch(batch_, costs_);
    if (!worth_a_new_plan(seconds_under(plan_, costs_), seconds_under(then, costs_), lasting.recent, lasting.window))
      return;
    plan_ = then;
    replans_.push_back(step_);
  }

  std::vector<CostTable> truth_;
  std::int64_t batch_;
  std::normal_distribution<double> noise_;
  std::uniform_real_distribution<double> off_{0.0, 1.0};
  std::mt19937 generator_;
  std::vector<RankCost> costs_;
  Plan plan_;
  DriftWatch watch_;
  std::vector<int> replans_;
  int step_ = 0;
  double swing_ = 0.0;
  std::normal_distribution<double> normal_;
  std::vector<double> off_now_;  // per rank
};

// In truth the second rank has a high constant: a factor measured at one size is wrong at another.
TEST(DriftTest, plans_do_not_oscillate_where_tables_are_wrong) {
  const CostTable said({{1, 0.01}, {64, 0.64}});
  SimulatedRanks ranks({said, said}, {said, CostTable({{1, 0.30}, {64, 0.80}})}, 100, 0.0, 7);
  for (int step = 1; step <= 2000; ++step) ranks.step();
  EXPECT_GE(ranks.replans().size(), 1U);
  EXPECT_LE(ranks.replans().size(), 6U);
  EXPECT_LT(ranks.replans().empty() ? 0 : ranks.replans().back(), 600);
}

TEST(DriftTest, a_rank_that_becomes_three_times_slower_is_answered_soon_and_for_good) {
  const CostTable said({{1, 0.004}, {1024, 0.104}});
  for (unsigned seed = 0; seed < 30; ++seed) {
    const double noise = 0.05 * (seed % 3);
    const bool wild = noise > 0.05;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", noise " << noise);
    SimulatedRanks ranks({said, said, said}, {said, said, said}, 1024, noise, seed);
    for (int step = 1; step <= 600; ++step) ranks.step();
    EXPECT_TRUE(ranks.replans().empty()) << "in steady steps";
    ranks.slow_down(1, 3.0);
    for (int step = 1; step <= 100; ++step) ranks.step();
    ASSERT_FALSE(ranks.replans().empty());
    EXPECT_LE(ranks.replans().front(), 620);
    EXPECT_LE(ranks.idle(), wild ? 0.08 : 0.05) << "after the answer and its correction";
    const std::size_t answered = ranks.replans().size();
    EXPECT_LE(answered, 2U);
    for (int step = 1; step <= 600; ++step) ranks.step();
    EXPECT_LE(ranks.replans().size(), answered + (wild ? 1 : 0)) << "in steady steps after it";
    EXPECT_LE(ranks.idle(), 0.05);
  }
}

// Plans that follow them would be late each time, and ranks would wait longer than under a plan that stays.
TEST(DriftTest, speeds_that_come_and_go_are_hardly_ever_followed) {
  const CostTable said({{1, 0.004}, {1024, 0.104}});
  int followed = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SimulatedRanks ranks({said, said}, {scaled(said, 0.98 + 0.02 * (seed % 3)), said}, 1024, 0.03, seed);
    ranks.swing(0.03);
    for (int step = 1; step <= 700; ++step) ranks.step();
    followed += ranks.replans().empty() ? 0 : 1;
  }
  EXPECT_LE(followed, 24);
}

}  // namespace
}  // namespace onebatch
