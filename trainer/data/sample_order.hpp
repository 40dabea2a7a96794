// Which samples an optimizer step uses. See Note [One global batch]: never a function of ranks, micro-batches or plan.
#pragma once

#include "trainer/base/configuration.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace onebatch {

/// How an epoch goes through the samples.
struct SampleDrawing {
  Sampling order = Sampling::shuffle;
  /// balanced, weighted: of each sample its weight and those of all before it, summed; the same wherever it is copied.
  std::shared_ptr<const std::vector<double>> sums = {};
};

/// Samples are drawn with replacement, each as often as its weight says. Throws std::invalid_argument where weights are
/// not finite, negative, or all 0.
SampleDrawing drawn_by_weight(Sampling order, std::span<const double> weights);

/// The samples of one epoch, as many as there are: shuffled they are a permutation of 0 … dataset_size − 1. Depends on
/// the seed, the epoch, the size and the weights alone.
std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t dataset_size,
                                      const SampleDrawing& drawing = {});

/// Above so many samples an epoch's order is no list, which would take 8 bytes for each on every rank, but is computed
/// place by place.
constexpr std::int64_t k_most_listed_samples = std::int64_t{1} << 20;

/// A permutation of 0 … size − 1 without a list of it: a Feistel network over the next power of 4 (Luby and Rackoff,
/// "How to construct pseudorandom permutations from pseudorandom functions", 1988), walked on from what lies beyond
/// `size` (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
class ComputedOrder {
 public:
  ComputedOrder(std::uint64_t key, std::int64_t size);
  /// The sample at this place, from 0.
  [[nodiscard]] std::int64_t at(std::int64_t place) const;

 private:
  [[nodiscard]] std::uint64_t permuted(std::uint64_t place) const;

  std::uint64_t key_;
  std::uint64_t size_;
  unsigned half_bits_;
};

/// Where a run stands: everything about the order that must survive a stop. Independent of the batch size, so that it
/// may change.
struct OrderPosition {
  std::int64_t epoch = 0;
  std::int64_t consumed_in_epoch = 0;
  std::int64_t consumed_samples = 0;  // over all epochs
  friend bool operator==(const OrderPosition&, const OrderPosition&) = default;
};

/// Walks the global batches of the epochs.
class SampleOrder {
 public:
  /// Throws std::invalid_argument where no batch could ever be given.
  SampleOrder(std::uint64_t seed, std::int64_t dataset_size, std::int64_t global_batch_size, LastBatch last_batch,
              OrderPosition start = {}, SampleDrawing drawing = {});

  /// The samples of the next optimizer step in order; shorter at the end of an epoch. Rolls over to the next epoch by
  /// itself.
  std::vector<std::int64_t> next();
  /// How many samples `next` will give: the plan must fit it.
  [[nodiscard]] std::int64_t next_size() const;
  /// The position after the last `next`; consumed_in_epoch is 0 exactly when an epoch has just ended (or none has
  /// begun).
  [[nodiscard]] const OrderPosition& position() const { return position_; }
  /// Optimizer steps of one whole epoch.
  [[nodiscard]] std::int64_t steps_per_epoch() const;
  /// Steps left from `position` until `epochs` epochs are done.
  [[nodiscard]] std::int64_t steps_until_epoch(std::int64_t epochs) const;

 private:
  void roll_over();
  /// Of the present epoch, from a place on.
  [[nodiscard]] std::vector<std::int64_t> some_of_epoch(std::int64_t begin, std::int64_t count);
  [[nodiscard]] std::int64_t steps_in(std::int64_t samples) const;

  std::uint64_t seed_;
  std::int64_t dataset_size_;
  std::int64_t global_batch_size_;
  LastBatch last_batch_;
  OrderPosition position_;
  SampleDrawing drawing_;
  std::int64_t ordered_epoch_ = -1;
  std::vector<std::int64_t> order_;
};

}  // namespace onebatch
