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
