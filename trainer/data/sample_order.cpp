#include "trainer/data/sample_order.hpp"
#include "trainer/base/mix_bits.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>

namespace onebatch {
namespace {

// Below `bound` without bias. Not std::uniform_int_distribution, whose answers differ between standard libraries.
std::uint64_t draw_below(std::mt19937_64& generator, std::uint64_t bound) {
  const std::uint64_t refused = (0 - bound) % bound;  // so many of the lowest values would be one too many
  for (;;) {
    const std::uint64_t value = generator();
    if (value >= refused) return value % bound;
  }
}

std::uint64_t key_of(std::uint64_t seed, std::int64_t epoch) {
  return mix_bits(mix_bits(seed) ^ static_cast<std::uint64_t>(epoch));
}

// The first sample whose sum lies above a uniform part of all: one of weight 0 never is.
void draw_by_weight(std::vector<std::int64_t>& order, std::mt19937_64& generator, const std::vector<double>& sums) {
  const auto last = std::ranges::lower_bound(sums, sums.back());  // that has a weight, should the product round up
  for (std::int64_t& sample : order) {
    const double part = static_cast<double>(generator() >> 11) * 0x1p-53;
    sample = std::min(std::ranges::upper_bound(sums, part * sums.back()), last) - sums.begin();
  }
}

}  // namespace

SampleDrawing drawn_by_weight(Sampling order, std::span<const double> weights) {
  std::vector<double> sums(weights.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] >= 0.0)) throw std::invalid_argument("weights of samples are numbers from 0");
    sums[i] = sum += weights[i];
  }
  if (!(sum > 0.0) || !std::isfinite(sum)) throw std::invalid_argument("the weights' sum must be finite and above 0");
  return {order, std::make_shared<const std::vector<double>>(std::move(sums))};
}

std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t dataset_size,
                                      const SampleDrawing& drawing) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(dataset_size));
  std::iota(order.begin(), order.end(), 0);
  if (drawing.order == Sampling::sequential) return order;
  std::mt19937_64 generator(key_of(seed, epoch));
  if (drawing.sums) {
    draw_by_weight(order, generator, *drawing.sums);
  } else if (dataset_size > k_most_listed_samples) {
    const ComputedOrder computed(key_of(seed, epoch), dataset_size);
    for (std::int64_t& sample : order) sample = computed.at(sample);
  } else {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw_below(generator, i)]);
  }
  return order;
}

ComputedOrder::ComputedOrder(std::uint64_t key, std::int64_t size)
    : key_(key),
      size_(static_cast<std::uint64_t>(size)),
      half_bits_(static_cast<unsigned>(std::bit_width(size_ - 1) + 1) / 2) {}

std::uint64_t ComputedOrder::permuted(std::uint64_t place) const {
  constexpr std::uint64_t k_rounds = 6;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = place >> half_bits_;
  std::uint64_t right = place & mask;
  for (std::uint64_t round = 0; round < k_rounds; ++round) {
    const std::uint64_t mixed = left ^ (mix_bits(mix_bits(key_ + round) ^ right) & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

std::int64_t ComputedOrder::at(std::int64_t place) const {
  auto found = static_cast<std::uint64_t>(place);
  do found = permuted(found);
  while (found >= size_);
  return static_cast<std::int64_t>(found);
}

SampleOrder::SampleOrder(std::uint64_t seed, std::int64_t dataset_size, std::int64_t global_batch_size,
                         LastBatch last_batch, OrderPosition start, SampleDrawing drawing)
    : seed_(seed),
      dataset_size_(dataset_size),
      global_batch_size_(global_batch_size),
      last_batch_(last_batch),
      position_(start),
      drawing_(std::move(drawing)) {
  if (dataset_size < 1 || global_batch_size < 1)
    throw std::invalid_argument("an order needs at least one sample and a batch of at least one");
  if (drawing_.sums && static_cast<std::int64_t>(drawing_.sums->size()) != dataset_size)
    throw std::invalid_argument("an order by weight needs a weight for each sample");
  if (last_batch == LastBatch::drop && global_batch_size > dataset_size)
    throw std::invalid_argument("with the last batch dropped, a batch larger than the data set leaves no batch");
  if (start.consumed_in_epoch < 0 || start.consumed_in_epoch > dataset_size)
    throw std::invalid_argument("the position lies outside the epoch");
  roll_over();
}

std::int64_t SampleOrder::next_size() const {
  return std::min(global_batch_size_, dataset_size_ - position_.consumed_in_epoch);
}

std::vector<std::int64_t> SampleOrder::some_of_epoch(std::int64_t begin, std::int64_t count) {
  std::vector<std::int64_t> some(static_cast<std::size_t>(count));
  if (drawing_.order == Sampling::sequential) {
    std::iota(some.begin(), some.end(), begin);
    return some;
  }
  if (drawing_.sums == nullptr && dataset_size_ > k_most_listed_samples) {
    const ComputedOrder order(key_of(seed_, position_.epoch), dataset_size_);
    for (std::int64_t& sample : some) sample = order.at(begin++);
    return some;
  }
  if (ordered_epoch_ != position_.epoch) {
    order_ = epoch_order(seed_, position_.epoch, dataset_size_, drawing_);
    ordered_epoch_ = position_.epoch;
  }
  std::copy_n(order_.begin() + static_cast<std::ptrdiff_t>(begin), count, some.begin());
  return some;
}

std::vector<std::int64_t> SampleOrder::next() {
  const std::int64_t count = next_size();
  auto batch = some_of_epoch(position_.consumed_in_epoch, count);
  position_.consumed_in_epoch += count;
  position_.consumed_samples += count;
  roll_over();
  return batch;
}

// To the next epoch where this one has no batch left.
void SampleOrder::roll_over() {
  const std::int64_t left = dataset_size_ - position_.consumed_in_epoch;
  if (left > 0 && !(last_batch_ == LastBatch::drop && left < global_batch_size_)) return;
  ++position_.epoch;
  position_.consumed_in_epoch = 0;
}

std::int64_t SampleOrder::steps_in(std::int64_t samples) const {
  return last_batch_ == LastBatch::drop ? samples / global_batch_size_
                                        : (samples + global_batch_size_ - 1) / global_batch_size_;
}

std::int64_t SampleOrder::steps_per_epoch() const {
  return steps_in(dataset_size_);
}

std::int64_t SampleOrder::steps_until_epoch(std::int64_t epochs) const {
  if (position_.epoch >= epochs) return 0;
  return steps_in(dataset_size_ - position_.consumed_in_epoch) + (epochs - position_.epoch - 1) * steps_per_epoch();
}

}  // namespace onebatch
