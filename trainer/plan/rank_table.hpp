// What one rank needs for n samples, split into micro-batches as well as can be: F(n) of the planner.
#pragma once

#include "trainer/plan/planner.hpp"

#include <limits>
#include <map>
#include <memory>

namespace onebatch {

/// F(0) = 0, F(n) = min over least <= b <= min(n, largest) of T(b) + F(n - b), infinite where no split has the sum n.
/// Computed as far as it is asked for.
///
/// Note [At most one free micro-batch]. T is linear between the points of its table. Of two micro-batches that both lie
/// strictly inside linear pieces, or at kinks where the slope falls, one can be enlarged and the other reduced by as
/// much without loss, until one of them reaches an end or a kink where the slope rises. So some optimal split has at
/// most one size outside these "corners", and F(n) = min(T(n), min over corners p of F(n - p) + T(p)): a handful of
/// candidates for each n instead of all sizes.
///
/// Where the share limits micro-batches (ShareMemory), F(n) is that of a table whose largest size is what fits beside n
/// samples. With a preferred size (Note [Micro-batches for statistics]) it is that of a table whose least size is the
/// preferred one, or what the least micro-batch of n samples can be; shares below the preferred size are infinite,
/// unless the largest size is less.
class RankTable {
 public:
  RankTable(const RankCost& cost, std::optional<std::int64_t> accumulation_steps);

  /// F(n), infinite where n cannot be reached.
  double seconds(std::int64_t num_samples);
  /// Some sizes that take F(n), ascending.
  std::vector<std::int64_t> split(std::int64_t num_samples);
  /// The split of fewest distinct sizes that takes at most `limit_seconds` (at least F(n)).
  std::vector<std::int64_t> simple_split(std::int64_t num_samples, double limit_seconds);
  /// Time of micro-batches of these sizes.
  [[nodiscard]] double seconds_of(const std::vector<std::int64_t>& sizes) const;

  /// The most samples up to `cap` with F(n) + constant <= `limit_seconds`, for tables that are monotone(); `known` such
  /// samples are known of.
  std::int64_t most_samples(double limit_seconds, std::int64_t known, std::int64_t cap);
  /// A lower bound of the time per sample.
  [[nodiscard]] double least_seconds_per_sample() const { return least_rate_; }
  /// Whether every n >= 1 can be reached and more samples never take less time.
  [[nodiscard]] bool monotone() const { return least_ == 1 && largest_ >= 1 && !steps_ && preferred_ == 1; }
  [[nodiscard]] bool usable() const { return largest_ >= 1; }
  /// The largest share up to `cap` that there is memory for.
  [[nodiscard]] std::int64_t largest_share(std::int64_t cap) const;
  [[nodiscard]] double constant_seconds() const { return constant_; }
  [[nodiscard]] std::int64_t least() const { return least_; }
  [[nodiscard]] std::int64_t largest() const { return largest_; }

 private:
  struct Best {
    double seconds;          // F(n)
    std::int64_t last_size;  // one size of an optimal split of n
  };

  // The bounds of the sizes of one share.
  struct Sizes {
    std::int64_t least;
    std::int64_t largest;
    auto operator<=>(const Sizes&) const = default;
  };

  // Where a share of so many fits: the largest of its micro-batches.
  [[nodiscard]] std::optional<std::int64_t> largest_beside(std::int64_t num_samples) const;
  // The least of its micro-batches.
  [[nodiscard]] std::int64_t least_of(std::int64_t num_samples, std::int64_t largest) const;
  // The table to ask about so many samples, this one or one of other sizes; null where they do not fit.
  RankTable* table_of(std::int64_t num_samples);
  void make_room(std::size_t wanted);
  void extend(std::int64_t num_samples);
  void extend_free(std::size_t first);
  void extend_fixed(std::size_t n);
  void extend_steps(std::size_t n);
  [[nodiscard]] std::vector<std::int64_t> equal_split(std::int64_t num_samples, std::int64_t count) const;

  CostTable table_;
  std::int64_t least_;
  std::int64_t largest_;
  std::optional<std::int64_t> fixed_;
  std::optional<std::int64_t> steps_;
  double constant_;
  double least_rate_ = 0.0;
  std::vector<TimedSize> corners_;
  std::vector<Best> best_;  // of each n that was asked for
  // The least time per sample of single micro-batches up to there.
  double quickest_rate_ = std::numeric_limits<double>::infinity();
  std::optional<ShareMemory> memory_;
  std::int64_t preferred_ = 1;
  bool alike_ = false;                                  // of equally quick splits the one of sizes most alike is taken
  std::map<Sizes, std::unique_ptr<RankTable>> others_;  // of other bounds, as they are asked for
};

}  // namespace onebatch
