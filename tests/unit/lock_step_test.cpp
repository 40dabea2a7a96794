#include "trainer/plan/lock_step.hpp"

#include "trainer/base/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace onebatch {
namespace {

constexpr double k_infinite = std::numeric_limits<double>::infinity();

// G(c) for c = 0 .. batch straight from its definition: rank by rank, all sizes.
std::vector<double> brute_force_micro_steps(const std::vector<RankCost>& ranks, std::int64_t batch) {
  const auto width = static_cast<std::size_t>(batch) + 1;
  std::vector<double> best(width, k_infinite);
  best[0] = 0.0;
  for (const RankCost& rank : ranks) {
    std::vector<double> next(width, k_infinite);
    for (std::size_t have = 0; have < width; ++have) {
      next[have] = std::min(next[have], best[have]);  // it waits
      for (std::int64_t b = rank.min_micro_batch; b <= rank.max_micro_batch; ++b) {
        if (rank.fixed_micro_batch && b > *rank.fixed_micro_batch) break;
        const std::size_t sum = have + static_cast<std::size_t>(b);
        if (sum < width) next[sum] = std::min(next[sum], std::max(best[have], rank.table.seconds(b)));
      }
    }
    best = next;
  }
  return best;
}

// Dynamic programming over the number of micro-steps and the samples done, where each takes either the smaller or the
// larger size.
double brute_force(const std::vector<RankCost>& ranks, std::int64_t batch, double latency, std::int64_t preferred = 1) {
  const auto g = brute_force_micro_steps(ranks, batch);
  double best = k_infinite;
  for (std::int64_t steps = 1; steps <= batch; ++steps) {
    if (best != k_infinite && batch / steps < preferred) break;  // only where fewer cannot be done
    std::vector<double> done(static_cast<std::size_t>(batch) + 1, k_infinite);
    done[0] = 0.0;
    for (std::int64_t k = 0; k < steps; ++k) {
      std::vector<double> next(done.size(), k_infinite);
      for (std::size_t x = 0; x < done.size(); ++x) {
        if (done[x] == k_infinite) continue;
        for (const std::int64_t c : {batch / steps, (batch + steps - 1) / steps}) {
          const std::size_t sum = x + static_cast<std::size_t>(c);
          if (sum < next.size()) next[sum] = std::min(next[sum], done[x] + g[static_cast<std::size_t>(c)] + latency);
        }
      }
      done = next;
    }
    best = std::min(best, done.back());
  }
  return best;
}

RankCost random_rank(std::mt19937& generator, std::int64_t least) {
  const auto real = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(generator);
  };
  const auto integer = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(generator);
  };
  const std::int64_t largest = integer(least, 10);
  std::vector<TimedSize> points;
  const double constant = real(0.0, 2.0);
  const bool plateau = integer(0, 3) == 0;
  for (std::int64_t size = 1; size <= largest; size += integer(1, 4))
    points.push_back(
        {size, (constant + 0.3 * static_cast<double>(plateau ? (size + 3) / 4 * 4 : size)) * real(0.7, 1.4)});
  RankCost rank{"d", CostTable(points), least, largest, std::nullopt, 0.0};
  if (integer(0, 4) == 0) rank.fixed_micro_batch = integer(least, largest);
  if (integer(0, 9) == 0) rank.max_micro_batch = least - 1;  // nothing fits on it
  return rank;
}

void expect_sound(const Plan& plan, const std::vector<RankCost>& ranks, std::int64_t batch) {
  std::vector<std::int64_t> sums;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::size_t step = 0;
    for (const auto& [size, count] : plan.ranks[r].micro_batches) {
      EXPECT_TRUE(size == 0 || (size >= ranks[r].min_micro_batch && size <= ranks[r].max_micro_batch)) << size;
      for (std::int64_t i = 0; i < count; ++i, ++step) {
        if (step == sums.size()) sums.push_back(0);
        sums[step] += size;
      }
    }
    EXPECT_EQ(step, sums.size()) << "every rank takes part in every micro-step";
  }
  std::int64_t total = 0;
  for (const std::int64_t sum : sums) {
    EXPECT_LE(std::abs(sum - sums.front()), 1) << "no tiny micro-step";
    total += sum;
  }
  EXPECT_EQ(total, batch);
}

TEST(LockStepTest, preferred_micro_steps_equal_brute_force) {
  std::mt19937 generator(5);
  int fewer = 0;
  for (int i = 0; i < 1000; ++i) {
    std::vector<RankCost> ranks;
    for (int r = std::uniform_int_distribution<int>(1, 3)(generator); r > 0; --r)
      ranks.push_back(random_rank(generator, i % 3 == 0 ? 2 : 1));
    const auto batch = std::uniform_int_distribution<std::int64_t>(1, 40)(generator);
    const auto preferred = std::uniform_int_distribution<std::int64_t>(2, 16)(generator);
    PlannerOptions options{.gradient_accumulation_steps = std::nullopt, .lock_step = true, .lock_step_seconds = 0.1};
    options.preferred_micro_batch = preferred;
    const double best = brute_force(ranks, batch, 0.1, preferred);
    if (best == k_infinite) continue;
    const Plan plan = plan_global_batch(batch, ranks, options);
    ASSERT_NEAR(plan.predicted_step_seconds, best, 1e-12 * best) << "case " << i;
    fewer += best > brute_force(ranks, batch, 0.1) * (1.0 + 1e-9) ? 1 : 0;
  }
  EXPECT_GT(fewer, 50);
}

TEST(LockStepTest, random_cases_equal_brute_force) {
  std::mt19937 generator(3);
  int planned = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::int64_t least = std::uniform_int_distribution<std::int64_t>(1, i % 3 == 0 ? 3 : 1)(generator);
    std::vector<RankCost> ranks;
    for (int r = std::uniform_int_distribution<int>(1, 4)(generator); r > 0; --r)
      ranks.push_back(random_rank(generator, least));
    const auto batch = std::uniform_int_distribution<std::int64_t>(1, 40)(generator);
    const double latency = std::uniform_real_distribution<double>(0.0, 0.5)(generator);
    const PlannerOptions options{
        .gradient_accumulation_steps = std::nullopt, .lock_step = true, .lock_step_seconds = latency};
    const double best = brute_force(ranks, batch, latency);
    if (best == k_infinite) {
      EXPECT_TRUE(find_lock_steps(batch, ranks, options).empty()) << "case " << i;
      continue;
    }
    ++planned;
    const Plan plan = plan_global_batch(batch, ranks, options);
    ASSERT_NEAR(plan.predicted_step_seconds, best, 1e-12 * best) << "case " << i;
    expect_sound(plan, ranks, batch);
  }
  EXPECT_GT(planned, 1000);
}

TEST(LockStepTest, a_rank_that_would_hold_the_others_up_waits) {
  const std::vector<RankCost> ranks = {{"quick", CostTable({{1, 0.01}, {64, 0.1}}), 1, 64, std::nullopt, 0.0},
                                       {"slow", CostTable({{1, 0.25}, {64, 0.5}}), 1, 64, std::nullopt, 0.0}};
  const Plan plan = plan_global_batch(64, ranks, {.gradient_accumulation_steps = std::nullopt, .lock_step = true});
  EXPECT_EQ(plan.ranks[0].samples, 64);
  EXPECT_EQ(plan.ranks[1].predicted_seconds, 0.0);
  EXPECT_NEAR(plan.predicted_step_seconds, 0.1, 1e-12);
}

TEST(LockStepTest, a_fixed_number_of_steps_is_kept) {
  const std::vector<RankCost> ranks(3, RankCost{"d", CostTable({{1, 1.0}, {2, 2.0}}), 1, 8, std::nullopt, 0.0});
  const Plan plan = plan_global_batch(41, ranks, {.gradient_accumulation_steps = 4, .lock_step = true});
  std::int64_t steps = 0;
  for (const auto& run : plan.ranks[0].micro_batches) steps += run.count;
  EXPECT_EQ(steps, 4);
  EXPECT_THROW(plan_global_batch(100, ranks, {.gradient_accumulation_steps = 4, .lock_step = true}), UserError);
}

TEST(LockStepTest, costly_meetings_make_larger_micro_steps) {
  const std::vector<RankCost> ranks(2,
                                    RankCost{"d", CostTable({{1, 1.0}, {2, 1.9}, {8, 9.0}}), 1, 8, std::nullopt, 0.0});
  const Plan cheap = plan_global_batch(16, ranks, {.gradient_accumulation_steps = std::nullopt, .lock_step = true});
  const Plan dear = plan_global_batch(
      16, ranks, {.gradient_accumulation_steps = std::nullopt, .lock_step = true, .lock_step_seconds = 10.0});
  EXPECT_EQ(cheap.ranks[0].micro_batches.back().size, 2);
  EXPECT_EQ(dear.ranks[0].micro_batches.back().size, 8);
}

TEST(LockStepTest, a_large_cluster_is_planned_too) {
  std::vector<RankCost> ranks;
  for (int r = 0; r < 64; ++r) {
    const double slow = 1.0 + 0.1 * r;
    ranks.push_back(
        {"d", CostTable({{1, 0.01 * slow}, {32, 0.1 * slow}, {128, 0.4 * slow}}), 1, 128, std::nullopt, 0.0});
  }
  const Plan plan = plan_global_batch(
      4096, ranks, {.gradient_accumulation_steps = std::nullopt, .lock_step = true, .lock_step_seconds = 0.001});
  expect_sound(plan, ranks, 4096);
}

}  // namespace
}  // namespace onebatch
