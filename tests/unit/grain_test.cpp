#include "trainer/plan/grain.hpp"

#include "trainer/base/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

namespace onebatch {
namespace {

constexpr double k_infinite = std::numeric_limits<double>::infinity();

RankCost random_rank(std::mt19937& generator) {
  std::uniform_real_distribution<double> rate(0.1, 4.0);
  const double per_sample = rate(generator);
  const double fixed = rate(generator);
  RankCost rank{"d", CostTable({{1, fixed + per_sample}, {16, fixed + rate(generator) + 16 * per_sample}}), 1, 1, {},
                0.0};
  rank.max_micro_batch = std::uniform_int_distribution<std::int64_t>(0, 24)(generator);
  rank.constant_seconds = std::uniform_int_distribution<int>(0, 2)(generator) == 0 ? rate(generator) : 0.0;
  if (std::uniform_int_distribution<int>(0, 1)(generator) == 0) {
    std::uniform_int_distribution<int> bytes(1, 10);
    rank.share_memory = {static_cast<double>(50 * bytes(generator)), static_cast<double>(bytes(generator)),
                         static_cast<double>(bytes(generator))};
  }
  return rank;
}

// Every way of handing out the calls; the rest goes to the last rank that computes anything, or to one after it.
double brute_force(std::int64_t batch, std::int64_t grain, const std::vector<RankCost>& ranks) {
  const std::int64_t rest = batch % grain;
  double best = k_infinite;
  std::vector<std::int64_t> calls(ranks.size(), 0);
  const auto judge = [&] {
    for (std::size_t last = 0; last < ranks.size(); ++last) {
      if (rest == 0 && last > 0) break;
      double slowest = 0.0;
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        const bool takes_rest = rest > 0 && r == last;
        if (rest > 0 && r > last && calls[r] > 0) slowest = k_infinite;
        const std::int64_t share = calls[r] * grain + (takes_rest ? rest : 0);
        const std::int64_t largest = calls[r] > 0 ? grain : takes_rest ? rest : 0;
        if (ranks[r].share_memory && static_cast<double>(share) * ranks[r].share_memory->kept_bytes_per_sample +
                                             static_cast<double>(largest) * ranks[r].share_memory->bytes_per_sample >
                                         ranks[r].share_memory->room_bytes)
          slowest = k_infinite;
        if ((calls[r] > 0 && ranks[r].max_micro_batch < grain) || (takes_rest && ranks[r].max_micro_batch < rest))
          slowest = k_infinite;
        slowest = std::max(slowest, ranks[r].constant_seconds +
                                        static_cast<double>(calls[r]) * ranks[r].table.seconds(grain) +
                                        (takes_rest ? ranks[r].table.seconds(rest) : 0.0));
      }
      best = std::min(best, slowest);
    }
  };
  const std::function<void(std::size_t, std::int64_t)> hand_out = [&](std::size_t rank, std::int64_t left) {
    if (rank + 1 == ranks.size()) {
      calls[rank] = left;
      return judge();
    }
    for (calls[rank] = 0; calls[rank] <= left; ++calls[rank]) hand_out(rank + 1, left - calls[rank]);
  };
  hand_out(0, batch / grain);
  return best;
}

struct GrainCase {
  std::vector<RankCost> ranks;
  std::int64_t grain = 0;
  std::int64_t batch = 0;
};

GrainCase random_case(std::mt19937& generator) {
  GrainCase made;
  for (int r = std::uniform_int_distribution<int>(1, 4)(generator); r > 0; --r)
    made.ranks.push_back(random_rank(generator));
  made.grain = std::uniform_int_distribution<std::int64_t>(1, 12)(generator);
  made.batch = std::uniform_int_distribution<std::int64_t>(1, 8 * made.grain)(generator);
  return made;
}

// Calls are counted along the global batch; its last one may be short.
void expect_whole_calls(const Plan& plan, const GrainCase& of) {
  std::int64_t begin = 0;
  for (const RankPlan& rank : plan.ranks) {
    for (const auto& [size, count] : rank.micro_batches) {
      EXPECT_EQ(begin % of.grain, 0);
      EXPECT_TRUE(size == of.grain || begin + size == of.batch);
      begin += size * count;
    }
  }
  EXPECT_EQ(begin, of.batch);
}

TEST(GrainTest, no_split_into_calls_is_faster) {
  std::mt19937 generator(11);
  int impossible = 0;
  for (int trial = 0; trial < 600; ++trial) {
    const GrainCase drawn = random_case(generator);
    const double expected = brute_force(drawn.batch, drawn.grain, drawn.ranks);
    PlannerOptions options;
    options.grain = drawn.grain;
    const GrainSplit split = split_by_grain(drawn.batch, drawn.grain, drawn.ranks);
    EXPECT_EQ(split.calls.empty(), expected == k_infinite) << trial;
    if (split.calls.empty()) {
      ++impossible;
      const bool lacks_room =
          std::ranges::any_of(drawn.ranks, [&](const RankCost& rank) { return rank.max_micro_batch >= drawn.grain; });
      if (lacks_room)
        EXPECT_THROW(plan_global_batch(drawn.batch, drawn.ranks, options), DoesNotFitError);
      else
        EXPECT_THROW(plan_global_batch(drawn.batch, drawn.ranks, options), UserError);
      continue;
    }
    EXPECT_NEAR(split.slowest_seconds, expected, 1e-9 * expected) << trial;
    expect_whole_calls(plan_global_batch(drawn.batch, drawn.ranks, options), drawn);
  }
  EXPECT_GT(impossible, 0);
  EXPECT_LT(impossible, 300);
}

TEST(GrainTest, no_room_for_what_is_kept_is_no_wrong_size) {
  std::vector<RankCost> ranks(2, RankCost{"d", CostTable({{1, 1.0}, {16, 16.0}}), 1, 16, {}, 0.0});
  for (RankCost& rank : ranks) rank.share_memory = {100.0, 10.0, 1.0};
  PlannerOptions options;
  options.grain = 4;
  EXPECT_THROW(plan_global_batch(64, ranks, options), DoesNotFitError);
  for (RankCost& rank : ranks) rank.max_micro_batch = 3;
  EXPECT_THROW(plan_global_batch(64, ranks, options), UserError);
}

TEST(GrainTest, other_splits_are_compared_where_they_fit) {
  std::vector<RankCost> ranks(2, RankCost{"d", CostTable({{1, 1.0}, {16, 16.0}}), 1, 16, {}, 0.0});
  ranks[1].max_micro_batch = 48;
  PlannerOptions options;
  options.grain = 4;
  const Plan plan = plan_global_batch(66, ranks, options);
  EXPECT_DOUBLE_EQ(plan.equal_split_seconds.value(), 34.0);
  EXPECT_DOUBLE_EQ(plan.memory_split_seconds.value(), 50.0);
  ranks[1].share_memory = {100.0, 4.0, 1.0};
  EXPECT_FALSE(plan_global_batch(66, ranks, options).memory_split_seconds.has_value());
}

}  // namespace
}  // namespace onebatch
