// Plans in which some ranks have nothing to do: what they say of those ranks, and that they can be read back from their
// document.
#include "trainer/base/error.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/plan/planner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

namespace onebatch {
namespace {

// Quick and slow devices, some without memory, whose exchanges take longer than the samples do or next to nothing.
RankCost random_rank(std::mt19937& generator) {
  std::uniform_real_distribution<double> rate(0.01, 4.0);
  const double per_sample = rate(generator) * (generator() % 3 == 0 ? 50.0 : 1.0);
  RankCost rank{"d", CostTable({{1, per_sample}, {16, rate(generator) + 16 * per_sample}}), 1, 1, {}, 0.0};
  rank.max_micro_batch = generator() % 4 == 0 ? 0 : std::uniform_int_distribution<std::int64_t>(1, 24)(generator);
  rank.constant_seconds = generator() % 3 == 0 ? 0.0 : rate(generator) * (generator() % 2 == 0 ? 30.0 : 0.1);
  return rank;
}

std::optional<EpochPlan> plan_if_any(std::int64_t batch, std::int64_t size, const std::vector<RankCost>& ranks,
                                     const PlannerOptions& options) {
  try {
    return plan_epoch(batch, size, LastBatch::exact, ranks, options);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// 1 - predicted / the slowest of all ranks, as the documents say it.
void expect_idle_as_defined(const Plan& plan, const PlannerOptions& options) {
  double slowest = 0.0;
  for (const RankPlan& rank : plan.ranks) slowest = std::max(slowest, rank.predicted_seconds);
  for (const RankPlan& rank : plan.ranks) {
    EXPECT_GE(rank.idle_fraction, 0.0);
    EXPECT_LE(rank.idle_fraction, 1.0);
    if (options.lock_step || slowest == 0.0) continue;  // there a rank waits for others in every micro-batch
    EXPECT_NEAR(rank.idle_fraction, 1.0 - rank.predicted_seconds / slowest, 1e-12);
  }
}

int num_idle(const Plan& plan) {
  return static_cast<int>(std::ranges::count_if(plan.ranks, [](const RankPlan& rank) { return rank.samples == 0; }));
}

TEST(IdleRankTest, every_plan_says_a_fraction_and_is_read_back) {
  std::mt19937 generator(3);
  int idle = 0;
  for (int trial = 0; trial < 900; ++trial) {
    std::vector<RankCost> ranks;
    for (std::size_t r = 2 + generator() % 3; r > 0; --r) ranks.push_back(random_rank(generator));
    PlannerOptions options;
    options.grain = trial % 3 == 0 ? std::uniform_int_distribution<std::int64_t>(1, 8)(generator) : 0;
    options.lock_step = trial % 3 == 1;
    const std::int64_t batch = std::uniform_int_distribution<std::int64_t>(1, 60)(generator);
    const auto plan =
        plan_if_any(batch, batch * 3 + std::uniform_int_distribution<std::int64_t>(0, 59)(generator), ranks, options);
    if (!plan) continue;
    idle += num_idle(plan->full);
    expect_idle_as_defined(plan->full, options);
    if (plan->last) expect_idle_as_defined(*plan->last, options);
    EXPECT_NO_THROW(EXPECT_EQ(to_json(parse_epoch_plan(to_json(*plan), "the plan")), to_json(*plan))) << trial;
  }
  EXPECT_GT(idle, 300);
}

}  // namespace
}  // namespace onebatch
