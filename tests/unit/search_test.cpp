#include "trainer/probe/search.hpp"

#include "trainer/base/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace onebatch {
namespace {

using Memory = std::function<double(std::int64_t)>;

struct Counted {
  SearchResult result;
  int failures = 0;
};

Counted search(const Memory& memory, std::int64_t limit, std::int64_t most, ProbeMode mode = ProbeMode::model,
               std::int64_t block_bytes = 0, SearchOptions options = {}) {
  options.mode = mode;
  options.limit_bytes = limit;
  options.resident_bytes = static_cast<std::int64_t>(memory(0));
  options.block_bytes = block_bytes;
  options.max_size = most;
  Counted counted;
  counted.result = search_largest_micro_batch(options, [&](std::int64_t size) {
    const auto peak = static_cast<std::int64_t>(memory(size));
    const bool fits = peak <= limit;
    if (!fits) ++counted.failures;
    return TrialResult{{size, fits, !fits, std::min(peak, limit), 0.001}, std::nullopt};
  });
  return counted;
}

std::int64_t true_largest(const Memory& memory, std::int64_t limit, std::int64_t most) {
  std::int64_t largest = 0;
  for (std::int64_t size = 1; size <= most && static_cast<std::int64_t>(memory(size)) <= limit; ++size) largest = size;
  return largest;
}

double rounded(double bytes, double unit) {
  return std::ceil(bytes / unit) * unit;
}

// Affine with the allocator's rounding, quadratic, with a workspace that appears at some size.
Memory random_memory(std::mt19937& generator, std::int64_t& block_bytes) {
  const auto real = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(generator);
  };
  const double fixed = real(1e6, 5e7);
  const double per_sample = std::exp(real(std::log(2e4), std::log(8e6)));
  const int kind = std::uniform_int_distribution<int>(0, 3)(generator);
  const double square = kind == 1 ? per_sample * real(0.001, 0.05) : 0.0;
  const double workspace_from = real(2, 100);
  const double workspace = kind == 2 ? real(1e5, 1e7) : 0.0;
  const double unit = kind == 3 ? 2097152.0 : 512.0;
  block_bytes = static_cast<std::int64_t>(unit);
  return [=](std::int64_t size) {
    const auto n = static_cast<double>(size);
    return fixed + rounded(per_sample * n + square * n * n + (n >= workspace_from ? workspace : 0.0), unit);
  };
}

TEST(SearchTest, random_memory_is_found_in_few_trials) {
  std::mt19937 generator(7);
  int close = 0;
  int cases = 0;
  int lean = 0;
  for (int i = 0; i < 400; ++i) {
    std::int64_t block_bytes = 0;
    const Memory memory = random_memory(generator, block_bytes);
    const std::int64_t limit = std::int64_t{1} << std::uniform_int_distribution<int>(27, 31)(generator);
    const std::int64_t largest = true_largest(memory, limit, 8192);
    if (largest == 0) continue;
    ++cases;
    const Counted found = search(memory, limit, 8192, ProbeMode::model, block_bytes);
    ASSERT_LE(found.result.largest_micro_batch, largest) << "case " << i;
    ASSERT_GE(static_cast<double>(found.result.largest_micro_batch), 0.95 * static_cast<double>(largest))
        << "case " << i;
    ASSERT_LE(found.result.trials.size(), 8U) << "case " << i;
    ASSERT_LE(found.failures, 2) << "case " << i;
    close += static_cast<double>(found.result.largest_micro_batch) >= 0.98 * static_cast<double>(largest) ? 1 : 0;
    lean += found.result.trials.size() <= 6 && found.failures <= 1 ? 1 : 0;
  }
  EXPECT_GT(cases, 300);
  EXPECT_GE(close, cases * 95 / 100) << "of " << cases;
  EXPECT_GE(lean, cases * 95 / 100) << "of " << cases;
}

TEST(SearchTest, only_tried_sizes_are_returned) {
  const Counted found = search([](std::int64_t n) { return 1e6 + 1e5 * static_cast<double>(n); }, 10'000'000, 8192);
  const auto& trials = found.result.trials;
  EXPECT_TRUE(std::any_of(trials.begin(), trials.end(),
                          [&](const Trial& t) { return t.fits && t.size == found.result.largest_micro_batch; }));
  EXPECT_EQ(found.result.largest_micro_batch, 90);
}

TEST(SearchTest, what_is_capped_is_tried_at_the_cap) {
  const Counted found = search([](std::int64_t n) { return 1e6 + 10.0 * static_cast<double>(n); }, 1'000'000'000, 257);
  EXPECT_EQ(found.result.largest_micro_batch, 257);
  EXPECT_EQ(found.failures, 0);
  EXPECT_LE(found.result.trials.size(), 3U);
}

TEST(SearchTest, a_size_that_is_asked_for_is_tried_though_a_search_would_end_before) {
  const Memory memory = [](std::int64_t n) { return 1e6 + 1e5 * static_cast<double>(n); };
  SearchOptions options;
  options.max_trials = 2;
  EXPECT_LT(search(memory, 17'000'000, 64, ProbeMode::model, 0, options).result.largest_micro_batch, 64);
  options.largest_is_wanted = true;
  const Counted fits = search(memory, 17'000'000, 64, ProbeMode::model, 0, options);
  EXPECT_EQ(fits.result.largest_micro_batch, 64);
  EXPECT_EQ(fits.result.peak_bytes, 7'400'000);
  EXPECT_LT(search(memory, 7'300'000, 64, ProbeMode::model, 0, options).result.largest_micro_batch, 64);
}

TEST(SearchTest, a_cap_of_one_needs_one_trial) {
  const Counted found = search([](std::int64_t) { return 1e6; }, 1'000'000'000, 1);
  EXPECT_EQ(found.result.largest_micro_batch, 1);
  EXPECT_EQ(found.result.trials.size(), 1U);
}

TEST(SearchTest, nothing_fits) {
  const Counted found = search([](std::int64_t n) { return 1e6 + 1e7 * static_cast<double>(n); }, 2'000'000, 8192);
  EXPECT_EQ(found.result.largest_micro_batch, 0);
}

TEST(SearchTest, doubling_stops_at_the_last_that_fitted) {
  const Counted found =
      search([](std::int64_t n) { return 1e5 * static_cast<double>(n); }, 10'000'000, 8192, ProbeMode::power);
  EXPECT_EQ(found.result.largest_micro_batch, 64);
  EXPECT_EQ(found.failures, 1);
}

TEST(SearchTest, bisection_finds_the_exact_size) {
  const Counted found =
      search([](std::int64_t n) { return 1e5 * static_cast<double>(n); }, 10'000'000, 8192, ProbeMode::binsearch);
  EXPECT_EQ(found.result.largest_micro_batch, 100);
}

TrialResult refusing(std::int64_t size, std::int64_t least) {
  if (size < least) return {{size, false, false, 0, 0.0}, "Expected more than 1 value per channel"};
  return {{size, true, false, size * 1000, 0.001}, std::nullopt};
}

TEST(SearchTest, a_model_that_refuses_one_sample_gets_two) {
  SearchOptions options;
  options.limit_bytes = 100'000;
  options.max_size = 50;
  const SearchResult found = search_largest_micro_batch(options, [](std::int64_t size) { return refusing(size, 2); });
  EXPECT_EQ(found.min_micro_batch, 2);
  EXPECT_EQ(found.largest_micro_batch, 50);
}

TEST(SearchTest, a_model_that_refuses_two_samples_is_the_users_to_mend) {
  SearchOptions options;
  options.limit_bytes = 100'000;
  EXPECT_THROW(search_largest_micro_batch(options, [](std::int64_t size) { return refusing(size, 3); }), UserError);
}

TEST(SearchTest, other_errors_end_the_search) {
  SearchOptions options;
  options.limit_bytes = 100'000;
  EXPECT_THROW(
      search_largest_micro_batch(options, [](std::int64_t) -> TrialResult { throw std::domain_error("a real error"); }),
      std::domain_error);
}

TEST(SearchTest, margin_holds_back_its_share) {
  EXPECT_EQ(apply_margin(100, 1, 0.05), 95);
  EXPECT_EQ(apply_margin(41, 1, 0.05), 39);
  EXPECT_EQ(apply_margin(1, 1, 0.05), 1);
  EXPECT_EQ(apply_margin(2, 2, 0.5), 2);
  EXPECT_EQ(apply_margin(100, 1, 0.0), 100);
}

TEST(SearchTest, timed_sizes_include_both_ends) {
  for (const int most_sizes : {2, 3, 8}) {
    for (const std::int64_t most : {1, 2, 3, 7, 64, 1000, 8192}) {
      const auto sizes = sizes_to_time(1, most, most_sizes);
      EXPECT_EQ(sizes.front(), 1);
      EXPECT_EQ(sizes.back(), most);
      EXPECT_LE(sizes.size(), static_cast<std::size_t>(most_sizes));
      EXPECT_TRUE(std::is_sorted(sizes.begin(), sizes.end()));
    }
  }
  EXPECT_EQ(sizes_to_time(1, 100, 3), (std::vector<std::int64_t>{1, 10, 100}));
}

}  // namespace
}  // namespace onebatch
