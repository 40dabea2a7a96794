#include "trainer/plan/reachable_sums.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace onebatch {
namespace {

struct Interval {
  std::int64_t begin;  // inclusive
  std::int64_t end;    // inclusive
};

// For each table the times F(n) + constant of all n; a time limit turns them into the shares that fit in it.
class ReachableSearch {
 public:
  ReachableSearch(std::int64_t batch, TableSet& tables) : batch_(batch), tables_(tables) {
    for (RankTable& table : tables.tables) {
      std::vector<double> seconds;
      for (std::int64_t n = 0; n <= batch; ++n) seconds.push_back(table.constant_seconds() + table.seconds(n));
      seconds_.push_back(std::move(seconds));
    }
  }

  std::vector<std::int64_t> run() {
    const std::vector<double> times = candidate_times();
    std::ptrdiff_t low = -1;
    auto high = static_cast<std::ptrdiff_t>(times.size()) - 1;
    if (high < 0 || !fits(times.back())) return {};
    while (high - low > 1) {
      const std::ptrdiff_t middle = low + (high - low) / 2;
      (fits(times[static_cast<std::size_t>(middle)]) ? high : low) = middle;
    }
    fits(times[static_cast<std::size_t>(high)]);
    return trace_back();
  }

 private:
  // Every rank waits for its own constant, even without samples.
  std::vector<double> candidate_times() const {
    double least = 0.0;
    for (const auto& seconds : seconds_) least = std::max(least, seconds[0]);
    std::vector<double> times = {least};
    for (const auto& seconds : seconds_) {
      for (const double s : seconds) {
        if (std::isfinite(s) && s > least) times.push_back(s);
      }
    }
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    return times;
  }

  std::vector<Interval> intervals_within(std::size_t table, double limit) const {
    std::vector<Interval> intervals;
    for (std::int64_t n = 0; n <= batch_; ++n) {
      if (seconds_[table][static_cast<std::size_t>(n)] > limit) continue;
      if (!intervals.empty() && intervals.back().end == n - 1) {
        intervals.back().end = n;
      } else {
        intervals.push_back({n, n});
      }
    }
    return intervals;
  }

  // reached_[r][x]: the first r ranks can do exactly x samples.
  bool fits(double limit) {
    const auto width = static_cast<std::size_t>(batch_) + 1;
    intervals_.clear();
    for (std::size_t table = 0; table < seconds_.size(); ++table) intervals_.push_back(intervals_within(table, limit));
    reached_.assign(1, std::vector<char>(width, 0));
    reached_[0][0] = 1;
    for (std::size_t rank = 0; rank < tables_.num_ranks(); ++rank) {
      reached_.emplace_back(width, 0);
      for (const Interval& interval : intervals_[tables_.table_of_rank[rank]])
        add_interval(reached_[rank], interval, reached_.back());
    }
    return reached_.back().back() != 0;
  }

  // to[x] is set where from[x - n] is for some n of the interval: a window that slides.
  void add_interval(const std::vector<char>& from, const Interval& interval, std::vector<char>& to) const {
    std::int64_t in_window = 0;
    for (std::int64_t x = interval.begin; x <= batch_; ++x) {
      in_window += from[static_cast<std::size_t>(x - interval.begin)];
      const std::int64_t leaves = x - interval.end - 1;
      if (leaves >= 0) in_window -= from[static_cast<std::size_t>(leaves)];
      if (in_window > 0) to[static_cast<std::size_t>(x)] = 1;
    }
  }

  // From the last rank backwards: as near to an equal part of what is left as its reachable shares allow.
  std::vector<std::int64_t> trace_back() const {
    std::vector<std::int64_t> shares(tables_.num_ranks());
    std::int64_t left = batch_;
    for (std::size_t rank = tables_.num_ranks(); rank-- > 0;) {
      const std::int64_t wanted = left / static_cast<std::int64_t>(rank + 1);
      std::int64_t best = -1;
      for (const Interval& interval : intervals_[tables_.table_of_rank[rank]]) {
        for (std::int64_t n = interval.begin; n <= std::min(interval.end, left); ++n) {
          if (reached_[rank][static_cast<std::size_t>(left - n)] == 0) continue;
          if (best < 0 || std::abs(n - wanted) < std::abs(best - wanted)) best = n;
        }
      }
      shares[rank] = best;
      left -= best;
    }
    return shares;
  }

  std::int64_t batch_;
  TableSet& tables_;
  std::vector<std::vector<double>> seconds_;
  std::vector<std::vector<Interval>> intervals_;
  std::vector<std::vector<char>> reached_;
};

}  // namespace

std::vector<std::int64_t> find_reachable_shares(std::int64_t global_batch_size, TableSet& tables) {
  return ReachableSearch(global_batch_size, tables).run();
}

}  // namespace onebatch
