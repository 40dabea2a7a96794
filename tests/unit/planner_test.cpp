#include "trainer/plan/planner.hpp"

#include "trainer/base/error.hpp"
#include "trainer/plan/plan_pattern.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace onebatch {
namespace {

constexpr double k_infinite = std::numeric_limits<double>::infinity();

// F of one rank straight from its definition.
std::vector<double> brute_force_times(const RankCost& rank, std::int64_t batch) {
  std::vector<double> f(static_cast<std::size_t>(batch) + 1, k_infinite);
  f[0] = 0.0;
  for (std::int64_t n = 1; n <= batch; ++n) {
    for (std::int64_t b = rank.min_micro_batch; b <= std::min(n, rank.max_micro_batch); ++b) {
      if (rank.fixed_micro_batch && b != *rank.fixed_micro_batch &&
          !(b < *rank.fixed_micro_batch && n % *rank.fixed_micro_batch == b))
        continue;
      f[static_cast<std::size_t>(n)] =
          std::min(f[static_cast<std::size_t>(n)], rank.table.seconds(b) + f[static_cast<std::size_t>(n - b)]);
    }
  }
  return f;
}

std::vector<double> brute_force_times_with_shares(const RankCost& rank, std::int64_t batch);

// The best makespan over all shares, rank by rank.
double brute_force(const std::vector<RankCost>& ranks, std::int64_t batch) {
  std::vector<double> best(static_cast<std::size_t>(batch) + 1, k_infinite);
  best[0] = 0.0;
  for (const RankCost& rank : ranks) {
    const auto f = rank.share_memory ? brute_force_times_with_shares(rank, batch) : brute_force_times(rank, batch);
    std::vector<double> next(best.size(), k_infinite);
    for (std::size_t have = 0; have < best.size(); ++have) {
      for (std::size_t n = 0; have + n < best.size(); ++n)
        next[have + n] = std::min(next[have + n], std::max(best[have], rank.constant_seconds + f[n]));
    }
    best = next;
  }
  return best.back();
}

double makespan(const Plan& plan) {
  double slowest = 0.0;
  for (const RankPlan& rank : plan.ranks) slowest = std::max(slowest, rank.predicted_seconds);
  return slowest;
}

void expect_sound(const Plan& plan, const std::vector<RankCost>& ranks, std::int64_t batch) {
  std::int64_t total = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::int64_t samples = 0;
    std::int64_t before = 0;
    double seconds = ranks[r].constant_seconds;
    for (const auto& [size, count] : plan.ranks[r].micro_batches) {
      EXPECT_GE(size, ranks[r].min_micro_batch);
      EXPECT_LE(size, ranks[r].max_micro_batch);
      EXPECT_GT(size, before) << "sizes ascend: the largest goes last";
      EXPECT_GE(count, 1);
      before = size;
      samples += size * count;
      seconds += static_cast<double>(count) * ranks[r].table.seconds(size);
    }
    EXPECT_EQ(samples, plan.ranks[r].samples);
    EXPECT_NEAR(seconds, plan.ranks[r].predicted_seconds, 1e-12 * (1.0 + seconds));
    total += samples;
  }
  EXPECT_EQ(total, batch);
}

class RandomCases {
 public:
  explicit RandomCases(unsigned seed) : generator_(seed) {}
  std::int64_t integer(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(generator_);
  }
  double real(double least, double most) { return std::uniform_real_distribution<double>(least, most)(generator_); }

  // Affine with noise, plateaus, single points, points in any order.
  CostTable table(std::int64_t largest) {
    std::vector<TimedSize> points;
    const double overhead = real(0.0, 2.0);
    const double slope = real(0.01, 1.0);
    const bool plateaus = integer(0, 3) == 0;
    for (std::int64_t size = 1; size <= largest + 2; size += integer(1, std::max<std::int64_t>(1, largest / 3))) {
      const double rounded = plateaus ? static_cast<double>((size + 3) / 4 * 4) : static_cast<double>(size);
      points.push_back({size, (overhead + slope * rounded) * real(0.8, 1.25)});
    }
    if (integer(0, 7) == 0) points.resize(1);
    return CostTable(points);
  }

  std::vector<RankCost> ranks(bool with_least, bool with_fixed) {
    std::vector<RankCost> made;
    const std::int64_t count = integer(1, 4);
    const std::int64_t least = with_least ? integer(1, 3) : 1;
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t largest = integer(least, 12);
      RankCost rank{"device", table(largest), least, largest, std::nullopt, integer(0, 2) == 0 ? real(0.0, 5.0) : 0.0};
      if (with_fixed && integer(0, 1) == 0) rank.fixed_micro_batch = integer(least, largest);
      made.push_back(rank);
    }
    return made;
  }

 private:
  std::mt19937 generator_;
};

TEST(PlannerTest, random_cases_equal_brute_force) {
  RandomCases random(1);
  for (int i = 0; i < 4000; ++i) {
    const auto ranks = random.ranks(false, false);
    const std::int64_t batch = random.integer(1, 60);
    const double best = brute_force(ranks, batch);
    const Plan exact =
        plan_global_batch(batch, ranks, {.gradient_accumulation_steps = std::nullopt, .few_sizes_tolerance = 0.0});
    ASSERT_NEAR(makespan(exact), best, 1e-12 * best) << "case " << i;
    expect_sound(exact, ranks, batch);
    const Plan simple = plan_global_batch(batch, ranks);
    ASSERT_LE(makespan(simple), best * (1.005 + 1e-12)) << "case " << i;
    expect_sound(simple, ranks, batch);
  }
}

// F(n) of a rank that keeps something of all n samples: only sizes that fit beside them.
std::vector<double> brute_force_times_with_shares(const RankCost& rank, std::int64_t batch) {
  std::vector<double> f(static_cast<std::size_t>(batch) + 1, k_infinite);
  f[0] = 0.0;
  for (std::int64_t n = 1; n <= batch; ++n) {
    const ShareMemory& memory = *rank.share_memory;
    RankCost limited = rank;
    limited.share_memory.reset();
    limited.max_micro_batch = 0;
    for (std::int64_t b = 1; b <= rank.max_micro_batch; ++b) {
      const double bytes =
          static_cast<double>(n) * memory.kept_bytes_per_sample + static_cast<double>(b) * memory.bytes_per_sample;
      if (bytes <= memory.room_bytes) limited.max_micro_batch = b;
    }
    // A fixed size that does not fit is not made smaller.
    if (rank.fixed_micro_batch && limited.max_micro_batch < std::min(n, *rank.fixed_micro_batch)) continue;
    f[static_cast<std::size_t>(n)] = brute_force_times(limited, n).back();
  }
  return f;
}

void expect_room_for_shares(const Plan& plan, const std::vector<RankCost>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const MicroBatchRun& run : plan.ranks[r].micro_batches)
      EXPECT_LE(run.size, ranks[r].share_memory->largest_micro_batch(plan.ranks[r].samples));
  }
}

// Whole numbers: no rounding at the limit.
std::vector<RankCost> ranks_that_keep_things(RandomCases& random, int number) {
  auto ranks = random.ranks(number % 3 == 0, number % 3 == 1);
  for (RankCost& rank : ranks) {
    rank.share_memory = {static_cast<double>(random.integer(0, 200)), static_cast<double>(random.integer(1, 8)),
                         static_cast<double>(random.integer(0, 12))};
  }
  return ranks;
}

TEST(PlannerTest, what_is_kept_of_a_share_limits_micro_batches_as_brute_force_says) {
  RandomCases random(7);
  const PlannerOptions exactly{.gradient_accumulation_steps = std::nullopt, .few_sizes_tolerance = 0.0};
  int impossible = 0;
  for (int i = 0; i < 1500; ++i) {
    SCOPED_TRACE(i);
    const std::int64_t batch = random.integer(1, 40);
    const auto ranks = ranks_that_keep_things(random, i);
    const double best = brute_force(ranks, batch);
    if (best == k_infinite) {
      ++impossible;
      // Where a model needs more than one sample, a plan of smaller ones is made, and said.
      if (ranks[0].min_micro_batch == 1) {
        EXPECT_ANY_THROW(plan_global_batch(batch, ranks, exactly));
      }
      continue;
    }
    const Plan exact = plan_global_batch(batch, ranks, exactly);
    const Plan simple = plan_global_batch(batch, ranks);
    ASSERT_NEAR(makespan(exact), best, 1e-12 * best);
    ASSERT_LE(makespan(simple), best * (1.005 + 1e-12));
    for (const Plan& plan : {exact, simple}) {
      expect_sound(plan, ranks, batch);
      expect_room_for_shares(plan, ranks);
    }
  }
  EXPECT_GT(impossible, 100);
  EXPECT_LT(impossible, 1000);
}

TEST(PlannerTest, no_room_for_what_is_kept_says_how_much_there_is) {
  RankCost rank{"device", CostTable({{1, 1.0}, {8, 8.0}}), 1, 8, std::nullopt, 0.0};
  rank.share_memory = {100.0, 4.0, 10.0};
  try {
    plan_global_batch(64, {rank, rank});
    FAIL() << "44 samples have room";
  } catch (const DoesNotFitError& error) {
    EXPECT_NE(std::string(error.what()).find("global batch of 64 the devices have memory for 44"), std::string::npos)
        << error.what();
  }
}

// Where no split keeps to what is fixed and to what the model takes: another size than the fixed ones, with a note, or
// none.
void expect_said(const std::vector<RankCost>& ranks, std::int64_t batch, const PlannerOptions& options) {
  const bool fixed =
      std::ranges::any_of(ranks, [](const RankCost& rank) { return rank.fixed_micro_batch.has_value(); });
  try {
    const Plan plan = plan_global_batch(batch, ranks, options);
    EXPECT_TRUE(fixed);
    EXPECT_FALSE(plan.notes.empty());
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      for (const MicroBatchRun& run : plan.ranks[r].micro_batches) EXPECT_GE(run.size, ranks[r].min_micro_batch);
    }
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("which this model's BatchNorm needs"));
  }
}

TEST(PlannerTest, least_sizes_and_fixed_sizes_equal_brute_force) {
  RandomCases random(2);
  int planned = 0;
  for (int i = 0; i < 1500; ++i) {
    const auto ranks = random.ranks(true, i % 2 == 0);
    const std::int64_t batch = random.integer(1, 50);
    const double best = brute_force(ranks, batch);
    const PlannerOptions options{.gradient_accumulation_steps = std::nullopt, .few_sizes_tolerance = 0.0};
    if (best == k_infinite) {
      expect_said(ranks, batch, options);
      continue;
    }
    const Plan plan = plan_global_batch(batch, ranks, options);
    ++planned;
    ASSERT_NEAR(makespan(plan), best, 1e-12 * best) << "case " << i;
    expect_sound(plan, ranks, batch);
  }
  EXPECT_GT(planned, 900);
}

// The largest least size of all splits of n, at most `preferred`: straight from the definition.
std::vector<std::int64_t> brute_force_least(const RankCost& rank, std::int64_t batch, std::int64_t preferred) {
  std::vector<std::int64_t> least(static_cast<std::size_t>(batch) + 1, 0);
  least[0] = preferred;
  for (std::int64_t n = 1; n <= batch; ++n) {
    for (std::int64_t b = rank.min_micro_batch; b <= std::min(n, rank.max_micro_batch); ++b)
      least[static_cast<std::size_t>(n)] =
          std::max(least[static_cast<std::size_t>(n)], std::min(b, least[static_cast<std::size_t>(n - b)]));
  }
  return least;
}

// As brute_force, where a rank's share n takes micro-batches of its largest least size, and is none or at least what is
// preferred.
double brute_force_with_preference(const std::vector<RankCost>& ranks, std::int64_t batch, std::int64_t preferred) {
  std::vector<double> best(static_cast<std::size_t>(batch) + 1, k_infinite);
  best[0] = 0.0;
  for (const RankCost& rank : ranks) {
    const auto least = brute_force_least(rank, batch, preferred);
    std::vector<double> f(best.size(), k_infinite);
    f[0] = 0.0;
    for (std::int64_t n = std::min(preferred, rank.max_micro_batch); n <= batch; ++n) {
      if (least[static_cast<std::size_t>(n)] == 0) continue;
      RankCost kept = rank;
      kept.min_micro_batch = std::max(rank.min_micro_batch, least[static_cast<std::size_t>(n)]);
      f[static_cast<std::size_t>(n)] = brute_force_times(kept, n).back();
    }
    std::vector<double> next(best.size(), k_infinite);
    for (std::size_t have = 0; have < best.size(); ++have) {
      for (std::size_t n = 0; have + n < best.size(); ++n)
        next[have + n] = std::min(next[have + n], std::max(best[have], rank.constant_seconds + f[n]));
    }
    best = next;
  }
  return best.back();
}

// The smallest micro-batch of all ranks, of which each has the least that brute force finds.
std::int64_t expect_preferred_sizes(const Plan& plan, const std::vector<RankCost>& ranks, std::int64_t preferred) {
  std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (plan.ranks[r].samples == 0) continue;
    const std::int64_t least = plan.ranks[r].micro_batches.front().size;
    EXPECT_GE(least, brute_force_least(ranks[r], plan.ranks[r].samples, preferred).back());
    smallest = std::min(smallest, least);
  }
  return smallest;
}

bool says_what_cannot_be_kept(const Plan& plan) {
  return std::ranges::any_of(
      plan.notes, [](const std::string& note) { return note.find("min_micro_batch_size") != std::string::npos; });
}

TEST(PlannerTest, preferred_sizes_equal_brute_force) {
  RandomCases random(11);
  int planned = 0;
  int tight = 0;
  for (int i = 0; i < 1500; ++i) {
    SCOPED_TRACE(i);
    const auto ranks = random.ranks(i % 2 == 0, false);
    const std::int64_t batch = random.integer(1, 60);
    PlannerOptions options{.gradient_accumulation_steps = std::nullopt, .few_sizes_tolerance = 0.0};
    options.preferred_micro_batch = random.integer(2, 16);
    const std::int64_t share = std::max<std::int64_t>(1, batch / static_cast<std::int64_t>(ranks.size()));
    const std::int64_t preferred = std::min(options.preferred_micro_batch, share);
    const double best = brute_force_with_preference(ranks, batch, preferred);
    if (best == k_infinite) continue;
    const Plan exact = plan_global_batch(batch, ranks, options);
    ++planned;
    ASSERT_NEAR(makespan(exact), best, 1e-12 * best);
    expect_sound(exact, ranks, batch);
    options.few_sizes_tolerance = 0.005;
    const Plan alike = plan_global_batch(batch, ranks, options);
    ASSERT_LE(makespan(alike), best * (1.005 + 1e-12));
    expect_sound(alike, ranks, batch);
    const std::int64_t smallest = expect_preferred_sizes(alike, ranks, preferred);
    EXPECT_EQ(says_what_cannot_be_kept(alike), smallest < options.preferred_micro_batch);
    tight += smallest < options.preferred_micro_batch ? 1 : 0;
  }
  EXPECT_GT(planned, 1200);
  EXPECT_GT(tight, 300);
}

TEST(PlannerTest, no_small_micro_batch_stands_beside_large_ones_where_statistics_are_taken) {
  // 36 samples in micro-batches of 11 at most: 11 + 11 + 11 + 3 takes as long as 4 x 9.
  const std::vector<RankCost> ranks = {{"d", CostTable({{1, 1.0}, {2, 2.0}}), 1, 11, std::nullopt, 0.0}};
  PlannerOptions options;
  options.preferred_micro_batch = 16;
  const Plan plan = plan_global_batch(36, ranks, options);
  EXPECT_EQ(plan.ranks[0].micro_batches, (std::vector<MicroBatchRun>{{9, 4}}));
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_NE(plan.notes[0].find("as few as 9 samples"), std::string::npos) << plan.notes[0];
  EXPECT_NE(plan.notes[0].find("memory does not hold more"), std::string::npos) << plan.notes[0];
}

TEST(PlannerTest, a_small_batch_and_not_memory_is_why_statistics_are_of_few) {
  // The probe tries no more than the batch.
  const std::vector<RankCost> ranks = {{"d", CostTable({{1, 1.0}, {2, 2.0}}), 1, 8, std::nullopt, 0.0}};
  PlannerOptions options;
  options.preferred_micro_batch = 16;
  const Plan plan = plan_global_batch(8, ranks, options);
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_NE(plan.notes[0].find("a batch of 8 has no more for each of 1 rank(s)"), std::string::npos) << plan.notes[0];
}

TEST(PlannerTest, equally_quick_splits_are_of_like_sizes_where_statistics_are_taken) {
  const std::vector<RankCost> ranks = {{"d", CostTable({{1, 1.0}, {2, 2.0}}), 1, 60, std::nullopt, 0.0}};
  PlannerOptions options;
  options.preferred_micro_batch = 16;
  const Plan plan = plan_global_batch(77, ranks, options);
  EXPECT_EQ(plan.ranks[0].micro_batches, (std::vector<MicroBatchRun>{{38, 1}, {39, 1}}));
  EXPECT_TRUE(plan.notes.empty());
}

TEST(PlannerTest, a_fixed_micro_batch_stays_what_it_is_and_its_remainder_is_said) {
  const std::vector<RankCost> ranks = {{"d", CostTable({{1, 1.0}, {2, 2.0}}), 1, 60, 20, 0.0}};
  PlannerOptions options;
  options.preferred_micro_batch = 16;
  const Plan plan = plan_global_batch(43, ranks, options);
  EXPECT_EQ(plan.ranks[0].micro_batches, (std::vector<MicroBatchRun>{{3, 1}, {20, 2}}));
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_NE(plan.notes[0].find("[batch] fixes"), std::string::npos) << plan.notes[0];
}

// ResNet-50 on V100 and P100, seconds per micro-step: the published profile of docs/profiles/v100-p100.json.
std::vector<RankCost> published_cluster() {
  const CostTable v100({{32, 0.0987}, {64, 0.1869}, {96, 0.2706}, {128, 0.3574}});
  const CostTable p100({{32, 0.1564}, {64, 0.2937}, {96, 0.4361}, {128, 0.5706}, {160, 0.7144}});
  std::vector<RankCost> ranks;
  for (int i = 0; i < 4; ++i) ranks.push_back({"V100", v100, 1, 128, std::nullopt, 0.0});
  for (int i = 0; i < 4; ++i) ranks.push_back({"P100", p100, 1, 160, std::nullopt, 0.0});
  return ranks;
}

TEST(PlannerTest, published_cluster_takes_the_published_times) {
  struct Row {
    std::int64_t batch;
    double slowest;
    double equal;
  };
  for (const Row& row : {Row{256, 0.1221, 0.1564}, Row{512, 0.2288, 0.2937}, Row{1024, 0.4487, 0.5706},
                         Row{2048, 0.8865, 1.1412}, Row{4096, 1.7599, 2.2824}}) {
    const Plan plan = plan_global_batch(row.batch, published_cluster(),
                                        {.gradient_accumulation_steps = std::nullopt, .few_sizes_tolerance = 0.0});
    EXPECT_NEAR(makespan(plan), row.slowest, 5e-5) << row.batch;
    EXPECT_NEAR(plan.equal_split_seconds.value(), row.equal, 5e-5) << row.batch;
  }
}

TEST(PlannerTest, published_cluster_shares_256_as_40_and_24) {
  const Plan plan = plan_global_batch(256, published_cluster());
  for (int r = 0; r < 8; ++r) EXPECT_EQ(plan.ranks[static_cast<std::size_t>(r)].samples, r < 4 ? 40 : 24);
}

TEST(PlannerTest, a_rank_that_would_slow_the_others_gets_nothing) {
  const std::vector<RankCost> ranks = {{"fast", CostTable({{1, 1.0}, {2, 2.0}}), 1, 8, std::nullopt, 0.0},
                                       {"slow", CostTable({{1, 100.0}, {2, 200.0}}), 1, 8, std::nullopt, 0.0}};
  const Plan plan = plan_global_batch(16, ranks);
  EXPECT_EQ(plan.ranks[1].samples, 0);
  EXPECT_TRUE(plan.ranks[1].micro_batches.empty());
  EXPECT_DOUBLE_EQ(plan.ranks[1].idle_fraction, 1.0);
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_NE(plan.notes[0].find("rank 1"), std::string::npos);
}

TEST(PlannerTest, fewer_samples_than_ranks_leaves_ranks_idle) {
  const std::vector<RankCost> ranks(4, RankCost{"d", CostTable({{1, 1.0}, {2, 2.0}}), 1, 8, std::nullopt, 0.0});
  const Plan plan = plan_global_batch(1, ranks);
  std::int64_t total = 0;
  for (const RankPlan& rank : plan.ranks) total += rank.samples;
  EXPECT_EQ(total, 1);
}

TEST(PlannerTest, a_smaller_batch_in_a_plans_pattern_keeps_its_shares_and_its_accumulation) {
  const std::vector<RankCost> ranks = {{"fast", CostTable({{1, 1.0}, {2, 2.0}}), 2, 16, std::nullopt, 0.0},
                                       {"slow", CostTable({{1, 3.0}, {2, 6.0}}), 1, 4, std::nullopt, 0.0},
                                       {"none", CostTable({{1, 9.0}, {2, 9.0}}), 1, 0, std::nullopt, 0.0}};
  const Plan plan = plan_global_batch(128, ranks);
  ASSERT_EQ(plan.ranks[0].samples, 96);
  const auto counts = [](const RankPlan& rank) {
    std::int64_t count = 0;
    for (const MicroBatchRun& run : rank.micro_batches) count += run.count;
    return count;
  };
  for (std::int64_t batch = 4; batch <= 128; ++batch) {
    const auto found = in_pattern_of(plan, batch, ranks);
    ASSERT_TRUE(found.has_value()) << batch;
    std::int64_t samples = 0;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const RankPlan& rank = found->ranks[r];
      std::int64_t own = 0;
      for (const auto& [size, count] : rank.micro_batches) {
        EXPECT_GE(size, ranks[r].min_micro_batch);
        EXPECT_LE(size, ranks[r].max_micro_batch);
        own += size * count;
      }
      EXPECT_EQ(own, rank.samples);
      EXPECT_NEAR(static_cast<double>(own) / static_cast<double>(batch),
                  static_cast<double>(plan.ranks[r].samples) / 128.0, 1.0 / static_cast<double>(batch));
      EXPECT_EQ(counts(rank), std::min(counts(plan.ranks[r]), own / ranks[r].min_micro_batch));
      samples += own;
    }
    EXPECT_EQ(samples, batch);
  }
  EXPECT_FALSE(in_pattern_of(plan, 2, ranks).has_value());
}

TEST(PlannerTest, why_a_rank_gets_nothing_is_said) {
  const std::vector<RankCost> ranks(4, RankCost{"d", CostTable({{1, 1.0}, {2, 2.0}}), 1, 8, std::nullopt, 0.0});
  EXPECT_THAT(plan_global_batch(2, ranks).notes, testing::Contains(testing::HasSubstr("fewer samples than there are")));
  PlannerOptions options;
  options.grain = 4;
  EXPECT_THAT(plan_global_batch(8, ranks, options).notes, testing::Contains(testing::HasSubstr("[batch] fixes")));
}

TEST(PlannerTest, fixed_accumulation_steps_are_kept) {
  const std::vector<RankCost> ranks(3, RankCost{"d", CostTable({{1, 1.0}, {2, 2.0}}), 1, 8, std::nullopt, 0.0});
  const Plan plan = plan_global_batch(41, ranks, {.gradient_accumulation_steps = 2});
  std::int64_t total = 0;
  for (const RankPlan& rank : plan.ranks) {
    std::int64_t steps = 0;
    for (const auto& run : rank.micro_batches) steps += run.count;
    EXPECT_EQ(steps, rank.samples > 0 ? 2 : 0);
    total += rank.samples;
  }
  EXPECT_EQ(total, 41);
}

TEST(PlannerTest, steps_that_cannot_hold_the_batch_are_refused) {
  const std::vector<RankCost> ranks(2, RankCost{"d", CostTable({{1, 1.0}}), 1, 4, std::nullopt, 0.0});
  EXPECT_THROW(plan_global_batch(100, ranks, {.gradient_accumulation_steps = 2}), UserError);
}

TEST(PlannerTest, a_batch_below_what_the_model_takes_is_refused) {
  const std::vector<RankCost> ranks(2, RankCost{"d", CostTable({{2, 1.0}, {4, 2.0}}), 2, 4, std::nullopt, 0.0});
  EXPECT_THAT([&] { plan_global_batch(1, ranks); },
              testing::Throws<UserError>(testing::Property(&UserError::what, testing::HasSubstr("at least 2"))));
}

TEST(PlannerTest, fixed_sizes_leave_no_remainder_that_the_model_refuses) {
  const std::vector<RankCost> ranks(1, RankCost{"d", CostTable({{2, 1.0}, {6, 3.0}}), 2, 6, 6, 0.0});
  const Plan plan = plan_global_batch(19, ranks);
  std::int64_t total = 0;
  for (const MicroBatchRun& run : plan.ranks[0].micro_batches) {
    EXPECT_GE(run.size, 2);
    EXPECT_LE(run.size, 6);
    total += run.size * run.count;
  }
  EXPECT_EQ(total, 19);
  EXPECT_FALSE(plan.notes.empty());
}

TEST(PlannerTest, nonsense_is_refused) {
  const std::vector<RankCost> ranks(1, RankCost{"d", CostTable({{1, 1.0}}), 1, 4, std::nullopt, 0.0});
  EXPECT_THROW(plan_global_batch(0, ranks), UserError);
  EXPECT_THROW(plan_global_batch(8, {}), UserError);
  EXPECT_THROW(plan_global_batch(8, {RankCost{"d", CostTable({{1, 1.0}}), 1, 0, std::nullopt, 0.0}}), UserError);
}

TEST(PlannerTest, a_batch_that_no_memory_holds_a_plan_for_is_refused) {
  const std::vector<RankCost> ranks(2, RankCost{"d", CostTable({{1, 1.0}, {64, 2.0}}), 1, 64, std::nullopt, 0.0});
  for (const std::int64_t batch : {std::int64_t{10'000'000'000}, std::int64_t{1} << 40}) {
    try {
      plan_global_batch(batch, ranks);
      FAIL() << batch;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("write a smaller batch.global_batch_size"), std::string::npos)
          << error.what();
    }
  }
}

TEST(PlannerTest, few_sizes_are_preferred_where_that_is_nearly_free) {
  const std::vector<RankCost> ranks = {{"d", CostTable({{1, 1.001}, {32, 1.032}}), 1, 32, std::nullopt, 0.0}};
  const Plan plan = plan_global_batch(64 + 1, ranks);
  EXPECT_LE(plan.ranks[0].micro_batches.size(), 2U);
}

TEST(PlannerTest, epoch_has_a_plan_for_its_short_batch) {
  const std::vector<RankCost> ranks(3, RankCost{"d", CostTable({{1, 1.0}, {2, 2.0}}), 1, 8, std::nullopt, 0.0});
  EXPECT_EQ(plan_epoch(10, 25, LastBatch::exact, ranks).last.value().global_batch_size, 5);
  EXPECT_FALSE(plan_epoch(10, 25, LastBatch::drop, ranks).last.has_value());
  EXPECT_FALSE(plan_epoch(10, 30, LastBatch::exact, ranks).last.has_value());
}

}  // namespace
}  // namespace onebatch
