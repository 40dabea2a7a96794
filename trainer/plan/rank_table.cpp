#include "trainer/plan/rank_table.hpp"

#include <algorithm>
#include <limits>
#include <set>

namespace onebatch {
namespace {

constexpr double k_infinite = std::numeric_limits<double>::infinity();

// The two ends, and the sizes of the table between them at which the slope rises or the line does not go on exactly.
std::vector<std::int64_t> find_corners(const CostTable& table, std::int64_t least, std::int64_t largest) {
  std::set<std::int64_t> corners = {least, largest};
  for (const auto& [size, seconds] : table.points()) {
    if (size <= least || size >= largest) continue;
    const double before = table.seconds(size) - table.seconds(size - 1);
    const double after = table.seconds(size + 1) - table.seconds(size);
    if (after >= before) corners.insert(size);
  }
  // Below the first point and beyond the last the line may be held at a value instead of going on: there the bend can be anywhere.
  const auto& points = table.points();
  for (const std::int64_t size : {points.front().size - 1, points.front().size, points.back().size, points.back().size + 1}) {
    if (size > least && size < largest) corners.insert(size);
  }
  std::int64_t low = least;
  std::int64_t high = std::min(points.front().size, largest);
  if (points.size() > 1 && table.seconds(low) == 0.0 && low < high) {  // the extrapolated line reaches zero between two sizes
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (table.seconds(middle) == 0.0 ? low : high) = middle;
    }
    corners.insert({low, high});
  }
  return {corners.begin(), corners.end()};
}

}  // namespace

RankTable::RankTable(const RankCost& cost, std::optional<std::int64_t> accumulation_steps)
    : table_(cost.table),
      least_(cost.min_micro_batch),
      largest_(cost.fixed_micro_batch ? std::min(*cost.fixed_micro_batch, cost.max_micro_batch) : cost.max_micro_batch),
      fixed_(cost.fixed_micro_batch),
      steps_(accumulation_steps),
      constant_(cost.constant_seconds) {
  if (largest_ < least_) largest_ = 0;
  if (!usable()) return;
  corners_ = find_corners(table_, least_, largest_);
  least_rate_ = k_infinite;
  for (const std::int64_t corner : corners_) {
    corner_seconds_.push_back(table_.seconds(corner));
    least_rate_ = std::min(least_rate_, corner_seconds_.back() / static_cast<double>(corner));
  }
  // Where the slope falls inside, T(b)/b may be least at a point that is no corner.
  for (const auto& [size, seconds] : table_.points()) {
    if (size >= least_ && size <= largest_) least_rate_ = std::min(least_rate_, seconds / static_cast<double>(size));
  }
}

double RankTable::seconds(std::int64_t num_samples) {
  if (num_samples == 0) return 0.0;
  if (!usable()) return k_infinite;
  extend(num_samples);
  return seconds_[static_cast<std::size_t>(num_samples)];
}

void RankTable::extend(std::int64_t num_samples) {
  const auto wanted = static_cast<std::size_t>(num_samples) + 1;
  std::size_t n = seconds_.size();
  if (wanted <= n) return;
  seconds_.resize(wanted, k_infinite);
  last_size_.resize(wanted, 0);
  for (; n < wanted; ++n) {
    if (steps_) {
      extend_steps(n);
    } else if (fixed_) {
      extend_fixed(n);
    } else {
      extend_free(n);
    }
  }
}

void RankTable::extend_free(std::size_t n) {
  const auto size = static_cast<std::int64_t>(n);
  double best = k_infinite;
  std::int64_t choice = 0;
  if (size >= least_ && size <= largest_) {
    best = table_.seconds(size);
    choice = size;
  }
  for (std::size_t i = 0; i < corners_.size() && corners_[i] < size; ++i) {
    const double candidate = seconds_[n - static_cast<std::size_t>(corners_[i])] + corner_seconds_[i];
    if (candidate < best) {
      best = candidate;
      choice = corners_[i];
    }
  }
  seconds_[n] = best;
  last_size_[n] = choice;
}

// All of one size, but for one smaller remainder.
void RankTable::extend_fixed(std::size_t n) {
  const auto size = static_cast<std::int64_t>(n);
  if (size <= largest_) {
    if (size < least_) return;
    seconds_[n] = table_.seconds(size);
    last_size_[n] = size;
    return;
  }
  seconds_[n] = seconds_[n - static_cast<std::size_t>(largest_)] + table_.seconds(largest_);
  last_size_[n] = largest_;
}

void RankTable::extend_steps(std::size_t n) {
  const auto sizes = equal_split(static_cast<std::int64_t>(n), *steps_);
  if (sizes.empty()) return;
  seconds_[n] = seconds_of(sizes);
}

// `count` sizes that differ by one at most, ascending; empty where they would be too small or too large.
std::vector<std::int64_t> RankTable::equal_split(std::int64_t num_samples, std::int64_t count) const {
  const std::int64_t base = num_samples / count;
  const std::int64_t larger = num_samples % count;
  if (base < least_ || base + (larger > 0 ? 1 : 0) > largest_) return {};
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(count), base);
  std::fill(sizes.end() - static_cast<std::ptrdiff_t>(larger), sizes.end(), base + 1);
  return sizes;
}

double RankTable::seconds_of(const std::vector<std::int64_t>& sizes) const {
  double sum = 0.0;
  for (const std::int64_t size : sizes) sum += table_.seconds(size);
  return sum;
}

std::vector<std::int64_t> RankTable::split(std::int64_t num_samples) {
  if (num_samples == 0) return {};
  extend(num_samples);
  if (steps_) return equal_split(num_samples, *steps_);
  std::vector<std::int64_t> sizes;
  for (std::int64_t left = num_samples; left > 0; left -= sizes.back()) sizes.push_back(last_size_[static_cast<std::size_t>(left)]);
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

std::vector<std::int64_t> RankTable::simple_split(std::int64_t num_samples, double limit_seconds) {
  std::vector<std::int64_t> best = split(num_samples);
  if (fixed_ || steps_ || best.empty()) return best;
  const auto distinct = [](const std::vector<std::int64_t>& sizes) { return std::set<std::int64_t>(sizes.begin(), sizes.end()).size(); };
  std::size_t fewest = distinct(best);
  const auto offer = [&](const std::vector<std::int64_t>& sizes) {
    if (sizes.empty() || distinct(sizes) >= fewest || seconds_of(sizes) > limit_seconds) return;
    best = sizes;
    fewest = distinct(sizes);
  };
  const std::int64_t least_count = (num_samples + largest_ - 1) / largest_;
  const auto most_count = static_cast<std::int64_t>(best.size()) + 2;
  for (std::int64_t count = least_count; count <= most_count && fewest > 1; ++count) offer(equal_split(num_samples, count));
  return best;
}

std::int64_t RankTable::most_samples(double limit_seconds, std::int64_t cap) {
  const double budget = limit_seconds - constant_;
  if (!usable() || budget < 0.0) return 0;
  const double bound = least_rate_ > 0.0 ? budget / least_rate_ * (1.0 + 1e-9) + 1.0 : static_cast<double>(cap);
  const std::int64_t most = bound < static_cast<double>(cap) ? static_cast<std::int64_t>(bound) : cap;
  extend(most);
  const auto end = seconds_.begin() + static_cast<std::ptrdiff_t>(most) + 1;
  return static_cast<std::int64_t>(std::partition_point(seconds_.begin(), end, [&](double s) { return constant_ + s <= limit_seconds; }) -
                                   seconds_.begin()) -
         1;
}

}  // namespace onebatch
