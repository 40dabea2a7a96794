#include "trainer/plan/lock_step.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace onebatch {
namespace {

constexpr double k_infinite = std::numeric_limits<double>::infinity();
using Sizes = std::vector<std::int64_t>;  // per rank

// Of one rank's micro-batches.
struct Bounds {
  std::int64_t least;
  std::int64_t largest;  // 0 = nothing
};

Bounds bounds_of(const RankCost& rank) {
  const std::int64_t largest =
      rank.fixed_micro_batch ? std::min(*rank.fixed_micro_batch, rank.max_micro_batch) : rank.max_micro_batch;
  return {rank.min_micro_batch, largest < rank.min_micro_batch ? 0 : largest};
}

class LockStepSearch {
 public:
  explicit LockStepSearch(const std::vector<RankCost>& ranks) : ranks_(ranks) {
    for (const RankCost& rank : ranks) {
      bounds_.push_back(bounds_of(rank));
      least_sum_ += bounds_.back().largest > 0 ? bounds_.back().least : 0;
      largest_sum_ += bounds_.back().largest;
    }
  }

  [[nodiscard]] std::int64_t largest_sum() const { return largest_sum_; }

  /// G(c); infinite where it cannot be done.
  double seconds(std::int64_t count) {
    const auto found = known_.find(count);
    if (found != known_.end()) return found->second;
    return known_[count] = solve(count);
  }

  // Every rank's size in a micro-step of `count` samples that takes G(count).
  Sizes sizes(std::int64_t count) {
    const Sizes most = most_within(seconds(count));
    return count >= least_sum_ ? share_out(count, most) : *pick(count, most);
  }

 private:
  double solve(std::int64_t count) const {
    if (count > largest_sum_) return k_infinite;
    double high = 0.0;
    for (std::size_t r = 0; r < ranks_.size(); ++r) high = std::max(high, ranks_[r].table.seconds(bounds_[r].largest));
    if (!possible(count, high)) return k_infinite;
    double low = 0.0;
    // The least time is one that some size takes: halving ends where the bracket holds one such time only, which is
    // then taken exactly.
    for (double middle = low + (high - low) / 2; middle > low && middle < high; middle = low + (high - low) / 2) {
      if (possible(count, middle)) {
        high = slowest_of(most_within(middle));
      } else {
        low = middle;
      }
      if (high - low <= k_precision * high) break;
    }
    return high;
  }

  // Of what can be done within a time, the time that it takes itself.
  double slowest_of(const Sizes& most) const {
    double slowest = 0.0;
    for (std::size_t r = 0; r < ranks_.size(); ++r) slowest = std::max(slowest, ranks_[r].table.seconds(most[r]));
    return slowest;
  }

  Sizes most_within(double limit) const {
    Sizes most;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      std::int64_t low = 0;
      std::int64_t high = bounds_[r].largest + 1;
      while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        (ranks_[r].table.seconds(middle) <= limit ? low : high) = middle;
      }
      most.push_back(low < bounds_[r].least ? 0 : low);
    }
    return most;
  }

  bool possible(std::int64_t count, double limit) const {
    const Sizes most = most_within(limit);
    if (std::accumulate(most.begin(), most.end(), std::int64_t{0}) < count) return false;
    return count >= least_sum_ || pick(count, most).has_value();
  }

  // All ranks with at least their least, the rest in proportion to what each could do.
  Sizes share_out(std::int64_t count, const Sizes& most) const {
    Sizes sizes;
    std::int64_t room = 0;
    std::int64_t left = count;
    for (std::size_t r = 0; r < most.size(); ++r) {
      sizes.push_back(most[r] > 0 ? bounds_[r].least : 0);
      room += most[r] - sizes.back();
      left -= sizes.back();
    }
    const std::int64_t wanted = left;
    for (std::size_t r = 0; r < most.size() && room > 0; ++r) {
      const auto more = static_cast<std::int64_t>(static_cast<__int128>(most[r] - sizes[r]) * wanted / room);
      sizes[r] += more;
      left -= more;
    }
    for (std::size_t r = 0; left > 0; r = (r + 1) % most.size()) {
      if (sizes[r] >= most[r]) continue;
      ++sizes[r];
      --left;
    }
    return sizes;
  }

  // Fewer samples than all least sizes together: which ranks get some. reached[r][x]: the first r ranks can do exactly
  // x.
  std::optional<Sizes> pick(std::int64_t count, const Sizes& most) const {
    const auto width = static_cast<std::size_t>(count) + 1;
    std::vector<std::vector<char>> reached(ranks_.size() + 1, std::vector<char>(width, 0));
    reached[0][0] = 1;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t x = 0; x < width; ++x) {
        if (reached[r][x] == 0) continue;
        reached[r + 1][x] = 1;
        for (auto b = static_cast<std::size_t>(bounds_[r].least);
             b <= static_cast<std::size_t>(most[r]) && x + b < width; ++b)
          reached[r + 1][x + b] = 1;
      }
    }
    if (reached.back().back() == 0) return std::nullopt;
    Sizes sizes(ranks_.size(), 0);
    std::int64_t left = count;
    for (std::size_t r = ranks_.size(); r-- > 0;) {
      if (reached[r][static_cast<std::size_t>(left)] != 0) continue;
      sizes[r] = bounds_[r].least;
      while (reached[r][static_cast<std::size_t>(left - sizes[r])] == 0) ++sizes[r];
      left -= sizes[r];
    }
    return sizes;
  }

  static constexpr double k_precision = 1e-15;

  const std::vector<RankCost>& ranks_;
  std::vector<Bounds> bounds_;
  std::int64_t least_sum_ = 0;
  std::int64_t largest_sum_ = 0;
  std::map<std::int64_t, double> known_;
};

void append(std::vector<MicroBatchRun>& runs, std::int64_t size, std::int64_t count) {
  if (count == 0) return;
  if (!runs.empty() && runs.back().size == size) {
    runs.back().count += count;
  } else {
    runs.push_back({size, count});
  }
}

}  // namespace

std::vector<std::vector<MicroBatchRun>> find_lock_steps(std::int64_t global_batch_size,
                                                        const std::vector<RankCost>& ranks,
                                                        const PlannerOptions& options) {
  LockStepSearch search(ranks);
  if (search.largest_sum() == 0) return {};
  const auto given = options.gradient_accumulation_steps;
  const std::int64_t first = given.value_or((global_batch_size + search.largest_sum() - 1) / search.largest_sum());
  const std::int64_t last = given.value_or(global_batch_size);
  // Beyond these micro-steps have fewer samples than is preferred: then the first that can be done.
  const std::int64_t preferred = std::max(first, global_batch_size / options.preferred_micro_batch);
  double best = k_infinite;
  std::int64_t best_steps = 0;
  for (std::int64_t steps = first; steps <= last; ++steps) {
    const std::int64_t size = global_batch_size / steps;
    const std::int64_t larger = global_batch_size % steps;
    double seconds = static_cast<double>(steps) * options.lock_step_seconds;
    if (best_steps != 0 && steps > preferred) break;
    if (size == 0 || seconds >= best) break;
    seconds += static_cast<double>(steps - larger) * search.seconds(size);
    if (larger > 0) seconds += static_cast<double>(larger) * search.seconds(size + 1);
    if (seconds >= best) continue;
    best = seconds;
    best_steps = steps;
  }
  if (best_steps == 0) return {};
  const std::int64_t larger = global_batch_size % best_steps;
  const Sizes small = search.sizes(global_batch_size / best_steps);
  const Sizes large = larger > 0 ? search.sizes(global_batch_size / best_steps + 1) : small;
  std::vector<std::vector<MicroBatchRun>> runs(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    append(runs[r], small[r], best_steps - larger);
    append(runs[r], large[r], larger);
  }
  return runs;
}

std::vector<std::vector<VaryingTime>> lock_step_times(const Plan& plan, const std::vector<RankCost>& ranks) {
  std::vector<std::vector<VaryingTime>> times;
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    std::size_t step = 0;
    for (const auto& [size, count] : plan.ranks[r].micro_batches) {
      for (std::int64_t i = 0; i < count; ++i, ++step) {
        if (step == times.size()) times.emplace_back();
        times[step].push_back({ranks[r].table.seconds(size), ranks[r].jitter});
      }
    }
  }
  return times;
}

}  // namespace onebatch
