#include "trainer/plan/rank_table.hpp"

#include "trainer/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>

namespace onebatch {
namespace {

constexpr double k_infinite = std::numeric_limits<double>::infinity();
constexpr std::size_t k_most_entries = (std::size_t{1} << 30) + 1;

// The two ends, and the sizes of the table between them at which the slope does not fall.
std::vector<TimedSize> find_corners(const CostTable& table, std::int64_t least, std::int64_t largest) {
  std::vector<TimedSize> corners;
  corners.reserve(table.points().size() + 8);
  const auto add = [&](std::int64_t size) { corners.push_back({size, table.seconds(size)}); };
  add(least);
  add(largest);
  const auto& points = table.points();
  const auto slope_to = [&](std::size_t i) {
    return (points[i].seconds - points[i - 1].seconds) / static_cast<double>(points[i].size - points[i - 1].size);
  };
  for (std::size_t i = 1; i + 1 < points.size(); ++i) {
    if (points[i].size > least && points[i].size < largest && slope_to(i + 1) >= slope_to(i))
      corners.push_back(points[i]);
  }
  // Below the first point and beyond the last the line may be held at a value instead of going on: there the bend can
  // be anywhere.
  for (const std::int64_t size :
       {points.front().size - 1, points.front().size, points.back().size, points.back().size + 1}) {
    if (size > least && size < largest) add(size);
  }
  std::int64_t low = least;
  std::int64_t high = std::min(points.front().size, largest);
  if (points.size() > 1 && table.seconds(low) == 0.0 &&
      low < high) {  // the extrapolated line reaches zero between two sizes
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (table.seconds(middle) == 0.0 ? low : high) = middle;
    }
    add(low);
    add(high);
  }
  std::sort(corners.begin(), corners.end(), [](const TimedSize& a, const TimedSize& b) { return a.size < b.size; });
  const auto same = [](const TimedSize& a, const TimedSize& b) { return a.size == b.size; };
  corners.erase(std::unique(corners.begin(), corners.end(), same), corners.end());
  return corners;
}

std::int64_t distinct_sizes(const std::vector<std::int64_t>& ascending) {
  std::int64_t distinct = ascending.empty() ? 0 : 1;
  for (std::size_t i = 1; i < ascending.size(); ++i) distinct += ascending[i] != ascending[i - 1] ? 1 : 0;
  return distinct;
}

// The largest of begin..end that `holds`, which it does up to some; begin - 1 where it holds for none.
template <typename Holds>
std::int64_t last_that_holds(std::int64_t begin, std::int64_t end, const Holds& holds) {
  std::int64_t low = begin - 1;
  while (low < end) {
    const std::int64_t middle = low + (end - low + 1) / 2;
    if (holds(middle))
      low = middle;
    else
      end = middle - 1;
  }
  return low;
}

}  // namespace

RankTable::RankTable(const RankCost& cost, std::optional<std::int64_t> accumulation_steps)
    : table_(cost.table),
      least_(cost.min_micro_batch),
      largest_(cost.fixed_micro_batch ? std::min(*cost.fixed_micro_batch, cost.max_micro_batch) : cost.max_micro_batch),
      fixed_(cost.fixed_micro_batch),
      steps_(accumulation_steps),
      constant_(cost.constant_seconds),
      memory_(cost.share_memory),
      preferred_(fixed_ || steps_ ? 1 : cost.preferred_micro_batch),
      alike_(preferred_ > 1) {
  if (largest_ < least_) largest_ = 0;
  if (!usable()) return;
  corners_ = find_corners(table_, least_, largest_);
  least_rate_ = k_infinite;
  for (const auto& [size, seconds] : corners_) least_rate_ = std::min(least_rate_, seconds / static_cast<double>(size));
  // Where the slope falls inside, T(b)/b may be least at a point that is no corner.
  for (const auto& [size, seconds] : table_.points()) {
    if (size >= least_ && size <= largest_) least_rate_ = std::min(least_rate_, seconds / static_cast<double>(size));
  }
}

std::optional<std::int64_t> RankTable::largest_beside(std::int64_t num_samples) const {
  const std::int64_t wanted = std::min(num_samples, largest_);
  if (!memory_) return wanted;
  const std::int64_t fits = std::min(wanted, memory_->largest_micro_batch(num_samples));
  // Fixed sizes stay what they are.
  return fits < std::min(wanted, least_) || (fixed_ && fits < wanted) ? std::nullopt : std::optional(fits);
}

std::int64_t RankTable::largest_share(std::int64_t cap) const {
  if (!usable()) return 0;
  if (!memory_) return cap;
  return last_that_holds(1, cap, [&](std::int64_t n) { return largest_beside(n).has_value(); });
}

// In as few micro-batches as fit, all but alike, the least is as large as it can be.
std::int64_t RankTable::least_of(std::int64_t num_samples, std::int64_t largest) const {
  if (preferred_ == 1) return least_;
  const std::int64_t fewest = (num_samples + largest - 1) / largest;
  return std::max(least_, std::min(preferred_, num_samples / fewest));
}

RankTable* RankTable::table_of(std::int64_t num_samples) {
  const auto largest = largest_beside(num_samples);
  if (!largest || num_samples < std::min(preferred_, largest_)) return nullptr;
  const Sizes sizes{least_of(num_samples, *largest), *largest < std::min(num_samples, largest_) ? *largest : largest_};
  if (sizes == Sizes{least_, largest_}) return this;
  std::unique_ptr<RankTable>& other = others_[sizes];
  if (!other) {
    other =
        std::make_unique<RankTable>(RankCost{"", table_, sizes.least, sizes.largest, std::nullopt, constant_}, steps_);
    other->alike_ = alike_;
  }
  return other.get();
}

double RankTable::seconds(std::int64_t num_samples) {
  if (num_samples == 0) return 0.0;
  if (!usable()) return k_infinite;
  RankTable* const table = table_of(num_samples);
  if (table == nullptr) return k_infinite;
  if (table != this) return table->seconds(num_samples);
  extend(num_samples);
  return best_[static_cast<std::size_t>(num_samples)].seconds;
}

void RankTable::make_room(std::size_t wanted) {
  try {
    if (wanted > k_most_entries) throw std::bad_alloc();
    if (best_.capacity() < wanted) best_.reserve(wanted + wanted / 2);
    // GCC 12 makes each entry wait for the one before it where resize() itself is given the value.
    best_.resize(wanted);
  } catch (const std::bad_alloc&) {
    throw UserError(fmt::format(
        "a plan that gives one rank {} samples of a step takes {} MiB of memory to find, which cannot be had: write a "
        "smaller batch.global_batch_size (at most 2^30 a rank), or batches no larger than the data set",
        wanted - 1, wanted * sizeof(Best) >> 20));
  }
}

void RankTable::extend(std::int64_t num_samples) {
  const auto wanted = static_cast<std::size_t>(num_samples) + 1;
  const std::size_t known = best_.size();
  if (wanted <= known) return;
  make_room(wanted);
  std::fill(best_.begin() + static_cast<std::ptrdiff_t>(known), best_.end(), Best{k_infinite, 0});
  best_[0] = {0.0, 0};
  std::size_t n = std::max<std::size_t>(known, 1);
  if (!steps_ && !fixed_) return extend_free(n);
  for (; n < wanted; ++n) {
    if (steps_) {
      extend_steps(n);
    } else {
      extend_fixed(n);
    }
  }
}

// All from `first` on.
void RankTable::extend_free(std::size_t first) {
  Best* const best = best_.data();
  const auto begin = static_cast<std::int64_t>(first);
  const auto end = static_cast<std::int64_t>(best_.size());
  table_.visit(std::max(least_, begin), std::min(end - 1, largest_), [&](std::int64_t size, double seconds) {
    best[size] = {seconds, size};
  });
  for (std::int64_t size = begin; size < end; ++size) {
    Best least = best[size];
    // No split is quicker where no smaller size takes less time per sample.
    if (least.seconds <= quickest_rate_ * static_cast<double>(size)) {
      quickest_rate_ = least.seconds / static_cast<double>(size);
      continue;
    }
    for (std::size_t i = 0; i < corners_.size() && corners_[i].size < size; ++i) {
      const double candidate = best[size - corners_[i].size].seconds + corners_[i].seconds;
      if (candidate < least.seconds) least = {candidate, corners_[i].size};
    }
    best[size] = least;
  }
}

// All of one size, but for one smaller remainder.
void RankTable::extend_fixed(std::size_t n) {
  const auto size = static_cast<std::int64_t>(n);
  if (size <= largest_) {
    if (size < least_) return;
    best_[n] = {table_.seconds(size), size};
    return;
  }
  best_[n] = {best_[n - static_cast<std::size_t>(largest_)].seconds + table_.seconds(largest_), largest_};
}

void RankTable::extend_steps(std::size_t n) {
  const auto sizes = equal_split(static_cast<std::int64_t>(n), *steps_);
  if (sizes.empty()) return;
  best_[n].seconds = seconds_of(sizes);
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
  double last = 0.0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i == 0 || sizes[i] != sizes[i - 1]) last = table_.seconds(sizes[i]);
    sum += last;
  }
  return sum;
}

std::vector<std::int64_t> RankTable::split(std::int64_t num_samples) {
  if (num_samples == 0) return {};
  RankTable* const table = table_of(num_samples);
  if (table == nullptr) return {};
  if (table != this) return table->split(num_samples);
  extend(num_samples);
  if (steps_) return equal_split(num_samples, *steps_);
  std::vector<std::int64_t> sizes;
  for (std::int64_t left = num_samples; left > 0; left -= sizes.back())
    sizes.push_back(best_[static_cast<std::size_t>(left)].last_size);
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

std::vector<std::int64_t> RankTable::simple_split(std::int64_t num_samples, double limit_seconds) {
  RankTable* const table = table_of(num_samples);
  if (table != nullptr && table != this) return table->simple_split(num_samples, limit_seconds);
  std::vector<std::int64_t> best = split(num_samples);
  if (fixed_ || steps_ || best.empty()) return best;
  // What is to be small: how many sizes there are, or how far they lie apart.
  const auto variety = [&](const std::vector<std::int64_t>& sizes) {
    return alike_ ? 1 + sizes.back() - sizes.front() : distinct_sizes(sizes);
  };
  std::int64_t fewest = variety(best);
  const auto offer = [&](const std::vector<std::int64_t>& sizes) {
    if (sizes.empty() || seconds_of(sizes) > limit_seconds) return;
    best = sizes;
    fewest = variety(sizes);
  };
  const std::int64_t least_count = (num_samples + largest_ - 1) / largest_;
  const auto most_count = static_cast<std::int64_t>(best.size()) + 2;
  for (std::int64_t count = least_count; count <= most_count && fewest > 1; ++count) {
    if (fewest > (num_samples % count == 0 ? 1 : 2)) offer(equal_split(num_samples, count));
  }
  return best;
}

std::int64_t RankTable::most_samples(double limit_seconds, std::int64_t known, std::int64_t cap) {
  const double budget = limit_seconds - constant_;
  if (!usable() || budget < 0.0) return 0;
  const double bound = least_rate_ > 0.0 ? budget / least_rate_ * (1.0 + 1e-9) + 1.0 : static_cast<double>(cap);
  const std::int64_t most = bound < static_cast<double>(cap) ? static_cast<std::int64_t>(bound) : cap;
  if (memory_)
    return last_that_holds(std::min(known, most), most,
                           [&](std::int64_t n) { return constant_ + seconds(n) <= limit_seconds; });
  extend(most);
  const auto within = [&](const Best& best) { return constant_ + best.seconds <= limit_seconds; };
  const auto begin = best_.begin() + static_cast<std::ptrdiff_t>(std::min(known, most));
  const auto end = best_.begin() + static_cast<std::ptrdiff_t>(most) + 1;
  return static_cast<std::int64_t>(std::partition_point(begin, end, within) - best_.begin()) - 1;
}

}  // namespace onebatch
