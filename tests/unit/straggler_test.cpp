#include "trainer/plan/straggler.hpp"
#include "trainer/plan/planner.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace onebatch {
namespace {

constexpr double k_quartile = 0.67448975;  // of a normal distribution, in standard deviations

// The same by drawing steps.
double sampled_median_of_slowest(const std::vector<VaryingTime>& ranks, std::mt19937_64& generator) {
  constexpr int k_steps = 20001;
  std::normal_distribution<double> normal;
  std::vector<double> steps;
  for (int i = 0; i < k_steps; ++i) {
    double slowest = 0.0;
    for (const auto& rank : ranks)
      slowest = std::max(slowest, rank.seconds * (1.0 + rank.jitter / k_quartile * normal(generator)));
    steps.push_back(slowest);
  }
  std::nth_element(steps.begin(), steps.begin() + k_steps / 2, steps.end());
  return steps[k_steps / 2];
}

TEST(StragglerTest, without_jitter_it_is_the_slowest) {
  EXPECT_EQ(median_of_slowest({}), 0.0);
  EXPECT_EQ(median_of_slowest({{0.0, 0.0}, {0.0, 0.1}}), 0.0);
  EXPECT_EQ(median_of_slowest({{1.0, 0.0}, {3.0, 0.0}, {2.0, 0.0}}), 3.0);
}

TEST(StragglerTest, one_rank_takes_its_median) {
  EXPECT_DOUBLE_EQ(median_of_slowest({{2.0, 0.1}}), 2.0);
  EXPECT_DOUBLE_EQ(median_of_slowest({{2.0, 0.1}, {0.5, 0.1}}), 2.0) << "one that is never late changes nothing";
}

TEST(StragglerTest, agrees_with_drawn_steps) {
  std::mt19937_64 generator(7);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  for (int i = 0; i < 60; ++i) {
    const double unlike = i % 3 == 0 ? 0.0 : 0.2;
    const double most_jitter = i % 2 == 0 ? 0.02 : 0.1;
    std::vector<VaryingTime> ranks(1 + generator() % 60);
    for (auto& rank : ranks)
      rank = {0.05 * (1.0 + unlike * uniform(generator)), i % 5 == 0 ? most_jitter : most_jitter * uniform(generator)};
    const double sampled = sampled_median_of_slowest(ranks, generator);
    EXPECT_NEAR(median_of_slowest(ranks), sampled, 0.003 * sampled)
        << "case " << i << " of " << ranks.size() << " ranks";
  }
}

// The largest of n equal normal distributions has its median where one of them has its 2^(-1/n) quantile.
TEST(StragglerTest, as_many_equal_ranks_as_there_may_be_take_their_quantile) {
  for (const std::size_t count : {2U, 30U, 1024U, 1100U, 20000U, 1000000U}) {
    const double part = -std::expm1(-std::log(2.0) / static_cast<double>(count));
    double low = 0.0;
    double high = 10.0;
    while (high - low > 1e-9) {
      const double middle = (low + high) / 2.0;
      (std::erfc(middle / std::sqrt(2.0)) / 2.0 > part ? low : high) = middle;
    }
    const double expected = 3.0 * (1.0 + 0.02 / k_quartile * low);
    EXPECT_NEAR(median_of_slowest(std::vector<VaryingTime>(count, {3.0, 0.02})), expected, 1e-2 * (expected - 3.0))
        << count;
  }
}

TEST(StragglerTest, a_rank_of_much_jitter_far_below_the_slowest) {
  const std::vector<VaryingTime> ranks = {{1.0, 0.001}, {0.01, 20.0}, {0.5, 1.0}};
  std::mt19937_64 generator(3);
  const double sampled = sampled_median_of_slowest(ranks, generator);
  EXPECT_NEAR(median_of_slowest(ranks), sampled, 0.01 * sampled);
}

TEST(StragglerTest, a_rank_that_is_hardly_ever_the_slowest_adds_hardly_anything) {
  for (int i = 0; i < 1000; ++i) EXPECT_LT(median_of_slowest({{1.0, 0.24}, {1.0 - 1e-5 * i, 0.001}}), 1.005) << i;
}

TEST(StragglerTest, plans_stay_and_their_prediction_grows) {
  std::vector<RankCost> ranks(4, RankCost{"d", CostTable({{1, 0.3}, {8, 1.2}}), 1, 8, std::nullopt, 0.0});
  ranks[3].table = CostTable({{1, 0.6}, {8, 2.4}});
  for (const bool lock_step : {false, true}) {
    PlannerOptions options;
    options.lock_step = lock_step;
    for (RankCost& rank : ranks) rank.jitter = 0.0;
    const Plan calm = plan_global_batch(40, ranks, options);
    for (RankCost& rank : ranks) rank.jitter = 0.02;
    const Plan busy = plan_global_batch(40, ranks, options);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      EXPECT_EQ(busy.ranks[r].micro_batches, calm.ranks[r].micro_batches);
      EXPECT_EQ(busy.ranks[r].idle_fraction, calm.ranks[r].idle_fraction);
    }
    EXPECT_GT(busy.predicted_step_seconds, calm.predicted_step_seconds);
    EXPECT_LT(busy.predicted_step_seconds, 1.05 * calm.predicted_step_seconds);
  }
}

}  // namespace
}  // namespace onebatch
