#include "trainer/data/sample_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace onebatch {
namespace {

std::vector<std::int64_t> sorted(std::vector<std::int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<std::int64_t> all_of(std::int64_t size) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(size));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(SampleOrderTest, an_epoch_is_a_permutation) {
  for (const std::int64_t size : {1, 2, 3, 17, 1000}) EXPECT_EQ(sorted(epoch_order(5, 2, size)), all_of(size));
}

TEST(SampleOrderTest, seed_and_epoch_change_the_order) {
  EXPECT_EQ(epoch_order(1, 0, 100), epoch_order(1, 0, 100));
  EXPECT_NE(epoch_order(1, 0, 100), epoch_order(1, 1, 100));
  EXPECT_NE(epoch_order(1, 0, 100), epoch_order(2, 0, 100));
}

// Every sample at every place about equally often: 4 * 4 cells, 4,000 epochs, expected 1,000 each, standard
// deviation 27.
TEST(SampleOrderTest, places_are_uniform) {
  std::vector<int> counts(16, 0);
  for (std::int64_t epoch = 0; epoch < 4000; ++epoch) {
    const auto order = epoch_order(9, epoch, 4);
    for (std::size_t place = 0; place < 4; ++place) ++counts[place * 4 + static_cast<std::size_t>(order[place])];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

std::vector<std::int64_t> computed(std::uint64_t key, std::int64_t size) {
  const ComputedOrder order(key, size);
  std::vector<std::int64_t> values;
  for (std::int64_t place = 0; place < size; ++place) values.push_back(order.at(place));
  return values;
}

TEST(SampleOrderTest, a_computed_order_is_a_permutation) {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 16, 17, 1000, 65536, 65537})
    EXPECT_EQ(sorted(computed(7, size)), all_of(size));
}

// 64 parts of the places against 64 parts of the samples: 4,096 cells of 244 expected. Of a random permutation the sum
// of squares over the expected value has a mean near 63² = 3,969 and a standard deviation near 89.
TEST(SampleOrderTest, a_computed_order_passes_as_random) {
  constexpr std::int64_t k_size = 1'000'003;
  for (const std::uint64_t key : {1U, 2U, 3U}) {
    const ComputedOrder order(key, k_size);
    std::vector<double> cells(64 * 64, 0.0);
    for (std::int64_t place = 0; place < k_size; ++place)
      ++cells[static_cast<std::size_t>(place * 64 / k_size * 64 + order.at(place) * 64 / k_size)];
    double squares = 0.0;
    const double expected = k_size / 4096.0;
    for (const double cell : cells) squares += (cell - expected) * (cell - expected) / expected;
    EXPECT_NEAR(squares, 3969.0, 5 * 89.0) << key;
  }
}

TEST(SampleOrderTest, a_large_epoch_gives_every_sample_once_and_goes_on_where_it_stood) {
  constexpr std::int64_t k_size = k_most_listed_samples + 1;
  SampleOrder order(3, k_size, 100'000, LastBatch::exact);
  std::vector<std::int64_t> seen;
  while (order.position().epoch == 0) {
    const SampleOrder copy(3, k_size, 100'000, LastBatch::exact, order.position());
    const auto batch = order.next();
    EXPECT_EQ(SampleOrder(copy).next(), batch);
    seen.insert(seen.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(sorted(seen), all_of(k_size));
  EXPECT_EQ(seen, epoch_order(3, 0, k_size));
  const auto next_epoch = order.next();
  EXPECT_FALSE(std::equal(next_epoch.begin(), next_epoch.end(), seen.begin()));
}

TEST(SampleOrderTest, the_last_batch_has_its_own_true_size) {
  SampleOrder order(1, 10, 4, LastBatch::exact);
  std::vector<std::int64_t> seen;
  for (const std::size_t expected : {4U, 4U, 2U}) {
    EXPECT_EQ(order.next_size(), static_cast<std::int64_t>(expected));
    const auto batch = order.next();
    EXPECT_EQ(batch.size(), expected);
    seen.insert(seen.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(sorted(seen), all_of(10));
  EXPECT_EQ(order.position(), (OrderPosition{1, 0, 10}));
}

TEST(SampleOrderTest, a_dropped_last_batch_is_not_consumed) {
  SampleOrder order(1, 10, 4, LastBatch::drop);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(order.next().size(), 4U);
  EXPECT_EQ(order.position(), (OrderPosition{1, 0, 8}));
  EXPECT_EQ(order.steps_per_epoch(), 2);
}

TEST(SampleOrderTest, a_batch_larger_than_the_data_is_the_data) {
  SampleOrder order(1, 5, 100, LastBatch::exact);
  EXPECT_EQ(order.next_size(), 5);
  EXPECT_EQ(sorted(order.next()), all_of(5));
}

TEST(SampleOrderTest, another_batch_size_goes_on_where_the_first_stopped) {
  SampleOrder whole(3, 20, 20, LastBatch::exact);
  const auto expected = whole.next();
  SampleOrder first(3, 20, 6, LastBatch::exact);
  std::vector<std::int64_t> seen = first.next();
  SampleOrder second(3, 20, 5, LastBatch::exact, first.position());
  EXPECT_EQ(second.steps_until_epoch(1), 3);
  while (second.position().epoch == 0) {
    const auto batch = second.next();
    seen.insert(seen.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(seen, expected);
}

TEST(SampleOrderTest, steps_until_an_epoch_count_short_batches) {
  SampleOrder order(1, 10, 4, LastBatch::exact);
  EXPECT_EQ(order.steps_until_epoch(2), 6);
  order.next();
  EXPECT_EQ(order.steps_until_epoch(2), 5);
  EXPECT_EQ(order.steps_until_epoch(0), 0);
}

TEST(SampleOrderTest, a_sequential_epoch_is_as_the_samples_lie) {
  for (const std::int64_t epoch : {0, 1, 7}) EXPECT_EQ(epoch_order(5, epoch, 9, {Sampling::sequential}), all_of(9));
}

// Frequencies against weights: the statistic of a chi-square test with 4 degrees of freedom, which is above 18.5 in one
// of a thousand cases (tables of the distribution); the draws of these seeds are always the same.
TEST(SampleOrderTest, samples_come_as_often_as_their_weights_say) {
  const std::vector<double> weights = {0.5, 0.0, 1.0, 3.0, 0.25, 5.25, 0.0};
  const SampleDrawing drawing = drawn_by_weight(Sampling::weighted, weights);
  std::vector<double> counts(weights.size(), 0.0);
  constexpr std::int64_t k_epochs = 20000;
  for (std::int64_t epoch = 0; epoch < k_epochs; ++epoch) {
    const auto order = epoch_order(11, epoch, 7, drawing);
    ASSERT_EQ(order.size(), weights.size());
    for (const std::int64_t sample : order) ++counts[static_cast<std::size_t>(sample)];
  }
  double statistic = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double expected = weights[i] / 10.0 * 7.0 * static_cast<double>(k_epochs);
    if (expected == 0.0) {
      EXPECT_EQ(counts[i], 0.0) << "sample " << i << " has no weight";
    } else {
      statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
  }
  EXPECT_LT(statistic, 18.5);
  RecordProperty("chi_square", std::to_string(statistic));
}

TEST(SampleOrderTest, one_sample_with_all_the_weight_is_all_that_comes) {
  for (std::size_t only = 0; only < 3; ++only) {
    std::vector<double> weights(3, 0.0);
    weights[only] = 1e-300;
    for (const std::int64_t sample : epoch_order(1, 0, 3, drawn_by_weight(Sampling::weighted, weights)))
      EXPECT_EQ(sample, static_cast<std::int64_t>(only));
  }
}

TEST(SampleOrderTest, draws_depend_on_seed_and_epoch_and_go_on_where_they_stopped) {
  const std::vector<double> weights = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
  const SampleDrawing drawing = drawn_by_weight(Sampling::weighted, weights);
  EXPECT_NE(epoch_order(1, 0, 13, drawing), epoch_order(1, 1, 13, drawing));
  EXPECT_NE(epoch_order(1, 0, 13, drawing), epoch_order(2, 0, 13, drawing));
  SampleOrder whole(3, 13, 13, LastBatch::exact, {}, drawing);
  SampleOrder first(3, 13, 5, LastBatch::exact, {}, drawing);
  auto both = first.next();
  SampleOrder second(3, 13, 8, LastBatch::exact, first.position(), drawing);
  for (const std::int64_t sample : second.next()) both.push_back(sample);
  EXPECT_EQ(both, whole.next());
}

TEST(SampleOrderTest, impossible_weights_are_refused) {
  const auto drawn = [](const std::vector<double>& weights) { return drawn_by_weight(Sampling::weighted, weights); };
  EXPECT_THROW(drawn({0.0, 0.0}), std::invalid_argument);
  EXPECT_THROW(drawn({1.0, -1.0}), std::invalid_argument);
  EXPECT_THROW(drawn({1.0, std::nan("")}), std::invalid_argument);
  EXPECT_THROW(drawn({1e308, 1e308}), std::invalid_argument);
  EXPECT_THROW(drawn({}), std::invalid_argument);
  EXPECT_THROW(SampleOrder(1, 3, 1, LastBatch::exact, {}, drawn({1.0, 1.0})), std::invalid_argument);
}

TEST(SampleOrderTest, impossible_orders_are_refused) {
  EXPECT_THROW(SampleOrder(1, 0, 4, LastBatch::exact), std::invalid_argument);
  EXPECT_THROW(SampleOrder(1, 4, 0, LastBatch::exact), std::invalid_argument);
  EXPECT_THROW(SampleOrder(1, 4, 5, LastBatch::drop), std::invalid_argument);
  EXPECT_THROW(SampleOrder(1, 4, 2, LastBatch::exact, {0, 5, 5}), std::invalid_argument);
}

}  // namespace
}  // namespace onebatch
