#include "trainer/probe/search.hpp"

#include "trainer/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace onebatch {
namespace {

class Search {
 public:
  Search(const SearchOptions& options, const std::function<TrialResult(std::int64_t)>& run_trial)
      : options_(options), run_trial_(run_trial) {}

  SearchResult run() {
    find_least();
    if (fits_ == 0) return result();
    switch (options_.mode) {
      case ProbeMode::model: by_model(); break;
      case ProbeMode::power: by_doubling(); break;
      case ProbeMode::binsearch:
        by_doubling();
        bisect();
        break;
    }
    if (options_.largest_is_wanted && fits_ < options_.max_size && failures_ == 0) attempt(options_.max_size);
    return result();
  }

 private:
  struct Point {
    double size;
    double peak;
  };

  // A model that refuses one sample (BatchNorm after pooling) is asked for two.
  void find_least() {
    const auto refused = attempt(1);
    if (!refused) return;
    least_ = 2;
    if (options_.max_size < 2)
      throw UserError("this model needs at least 2 samples in a micro-batch (" + *refused +
                      "), but only 1 is allowed: raise batch.micro_batch_size or batch.global_batch_size");
    if (const auto again = attempt(2))
      throw UserError("the model refuses micro-batches of 1 and of 2 samples: " + *again);
  }

  // Tries one size and remembers what it said; returns the model's words where it refused.
  std::optional<std::string> attempt(std::int64_t size) {
    const TrialResult tried = run_trial_(size);
    if (tried.refused && size > 2)
      throw UserError(fmt::format("the model refuses a micro-batch of {} samples: {}", size, *tried.refused));
    trials_.push_back(tried.trial);
    if (tried.refused) return tried.refused;
    if (tried.trial.fits) {
      points_.push_back({static_cast<double>(size), static_cast<double>(tried.trial.peak_bytes)});
      if (size > fits_) {
        fits_ = size;
        peak_ = tried.trial.peak_bytes;
      }
    } else {
      fails_ = std::min(fails_, size);
      ++failures_;
    }
    last_failed_ = !tried.trial.fits;
    return std::nullopt;
  }

  bool settled() const {
    return fits_ >= options_.max_size || fails_ - fits_ <= 1 ||
           static_cast<std::int64_t>(trials_.size()) >= options_.max_trials;
  }

  // Memory is close to affine in the size: a few small trials foretell the largest, one near it corrects the line, one
  // at it proves it.
  void by_model() {
    while (!settled() && !good_enough()) attempt(next_size());
  }

  // Trials cost time, failed ones more: what a further one could still win must be worth it.
  bool good_enough() const {
    const auto trials = static_cast<int>(trials_.size());
    if (trials >= k_last_trial) return true;
    const auto bound =
        static_cast<double>(std::min(fails_ - 1, points_.size() > 2 ? whole(foretold_largest()) : k_none));
    const double reached = static_cast<double>(fits_) / bound;
    if (trials >= k_many_trials) return reached >= k_enough;
    if (failures_ > 0) return reached >= (failures_ > 1 ? k_enough : k_near);
    // One sample more than was foretold is worth a failure where that would be a large part.
    return reached >= 1.0 && static_cast<double>(fits_ + 1) <= static_cast<double>(fits_) / k_near;
  }

  std::int64_t next_size() const {
    if (options_.limit_bytes <= 0) return clamp(fails_ == k_none ? fits_ * 2 : middle());
    if (points_.size() == 1) return clamp(fails_ == k_none ? second_size() : fails_ / k_retreat);
    const double foretold = foretold_largest();
    // A failure that the curve did not foresee: it knows no better now, but was seldom wrong by more than a half.
    if (last_failed_ || failures_ > 2) {
      if (is_near(foretold)) return clamp(whole(below_failure()));
      return clamp(failures_ == 1 ? std::max(middle(), whole(k_back * static_cast<double>(fails_))) : middle());
    }
    // From far below the curve is corrected once before it is believed; one failure is enough: after it the last
    // percent is left alone.
    double size = foretold;
    if (static_cast<double>(fits_) < k_far * foretold) {
      size *= k_well_short_of;
    } else if (fails_ != k_none) {
      size *= k_short_of;
    }
    if (points_.size() == 2) size = std::min(size, k_cautious * squared_largest());
    return bounded(size) < fails_ ? clamp(bounded(size)) : middle();
  }

  // A failure little more than what the curve foretells, from sizes not far below: it is nearly right.
  bool is_near(double foretold) const {
    return static_cast<double>(fails_) <= foretold * 1.02 && 2 * fits_ > fails_ &&
           static_cast<double>(fits_) < below_failure();
  }
  // Further below after each.
  [[nodiscard]] double below_failure() const {
    return (1.0 - (1.0 - k_near) * failures_) * static_cast<double>(fails_);
  }

  [[nodiscard]] double room() const { return static_cast<double>(options_.limit_bytes - options_.resident_bytes); }
  [[nodiscard]] double noise() const {
    return std::max(k_noise * room(), 1.5 * static_cast<double>(options_.block_bytes));
  }

  // By factors where they lie far apart.
  std::int64_t middle() const {
    return fits_ + std::max<std::int64_t>(
                       1, std::llround(std::sqrt(static_cast<double>(fits_) * static_cast<double>(fails_))) - fits_);
  }

  static std::int64_t whole(double size) {
    return size < static_cast<double>(k_none) ? static_cast<std::int64_t>(size) : k_none;
  }

  // Never far beyond what was seen to fit: the curve may bend.
  std::int64_t bounded(double size) const {
    const bool shown =
        points_.size() > 2 && static_cast<double>(peak_) > points_.front().peak + std::max(k_shown * room(), noise());
    const double leap = points_.size() == 2 ? k_first_leap : shown ? k_leap * k_leap : k_leap;
    return static_cast<std::int64_t>(
        std::min({size, static_cast<double>(options_.max_size), leap * static_cast<double>(fits_)}));
  }

  // What one sample took beyond what was held before is at least what each further one takes, unless memory grows
  // faster than the size.
  std::int64_t second_size() const {
    const double per_sample =
        std::max(1.0, (points_[0].peak - static_cast<double>(options_.resident_bytes)) / points_[0].size);
    const double safe = k_second * room() / per_sample;
    return safe >= static_cast<double>(options_.max_size) ? options_.max_size : static_cast<std::int64_t>(safe);
  }

  // Two sizes cannot tell a line from a square: where the limit would be met if all that the second took more grew with
  // the square.
  double squared_largest() const {
    const auto [low, high] = std::minmax_element(points_.begin(), points_.end(),
                                                 [](const Point& a, const Point& b) { return a.size < b.size; });
    const double per_square = (high->peak - low->peak) / (high->size * high->size - low->size * low->size);
    if (per_square <= 0.0) return HUGE_VAL;
    return std::sqrt(high->size * high->size + (static_cast<double>(options_.limit_bytes) - high->peak) / per_square);
  }

  // Where the curve through the largest sizes seen meets the limit: a parabola where it bends upwards, else a line.
  // With two sizes what was held before any sample is a point of the curve too.
  double foretold_largest() const {
    auto points = points_;
    if (points.size() < 3) points.push_back({0.0, static_cast<double>(options_.resident_bytes)});
    std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.size < b.size; });
    const Point c = points.back();
    // Neighbours tell no slope: they may share one block of the allocator.
    while (points.size() > 3 && points[points.size() - 2].size > k_apart * c.size) points.erase(points.end() - 2);
    const Point b = points[points.size() - 2];
    const Point a = points[points.size() - 3];
    const double limit = static_cast<double>(options_.limit_bytes);
    const double slope = (c.peak - b.peak) / (c.size - b.size);
    const double before = (b.peak - a.peak) / (b.size - a.size);
    double bend = (slope - before) / (c.size - a.size);
    // Where an earlier bend was stronger there is a kink between two lines, not a parabola.
    if (points.size() > 3) {
      const Point z = points[points.size() - 4];
      const double earlier = (before - (a.peak - z.peak) / (a.size - z.size)) / (b.size - z.size);
      if (earlier > bend) bend *= bend / earlier;
    }
    // How far the first is from the line through the others.
    const double off = std::abs(c.peak - slope * (c.size - a.size) - a.peak);
    if (slope > before * (1.0 + k_straight) && off > noise())
      return meet_parabola(c, slope + bend * (c.size - b.size), bend, limit);
    return slope <= 0.0 ? HUGE_VAL : c.size + (limit - c.peak) / slope;
  }

  // peak + slope * x + bend * x^2 = limit for x >= 0, x counted from the point.
  static double meet_parabola(const Point& from, double slope, double bend, double limit) {
    const double room = std::max(0.0, limit - from.peak);
    return from.size + 2.0 * room / (slope + std::sqrt(slope * slope + 4.0 * bend * room));
  }

  std::int64_t clamp(std::int64_t size) const {
    return std::clamp(size, fits_ + 1, std::min(options_.max_size, fails_ - 1));
  }

  void by_doubling() {
    for (std::int64_t size = std::max(options_.init_size, fits_ + 1); !settled() && fails_ == k_none; size *= 2) {
      attempt(std::min(size, options_.max_size));
    }
  }

  void bisect() {
    while (!settled()) attempt(middle());
  }

  SearchResult result() const { return {least_, fits_, peak_, trials_}; }

  static constexpr std::int64_t k_none = INT64_MAX;
  static constexpr double k_second = 0.125;     // of the room that the first sample foretells: the second trial's size
  static constexpr std::int64_t k_retreat = 8;  // by so much smaller where even that did not fit
  static constexpr double k_back = 0.55;  // of a size that did not fit: enough for the curve to be believed from there
  static constexpr double k_cautious = 0.9;        // of the size that a square would allow
  static constexpr double k_far = 0.5;             // of the foretold size: below it is far
  static constexpr double k_well_short_of = 0.85;  // of the foretold size, from far below
  static constexpr double k_short_of = 0.99;       // of the foretold size, after a failure
  static constexpr double k_first_leap = 64.0;     // times the largest that fitted, from two sizes
  static constexpr double k_leap = 16.0;           // from more; squared once three show the curve
  static constexpr double k_apart = 0.8;           // of the largest size: points nearer to it are left out of the curve
  static constexpr double k_straight = 0.002;      // slopes that differ by less are one line
  static constexpr double k_noise = 0.001;         // of the room
  static constexpr double k_shown = 0.03;          // of the room: a rise that shows where the curve goes
  static constexpr double k_near = 0.985;          // of what could be: good enough after a failure
  static constexpr double k_enough = 0.95;         // the same when trials have cost too much already
  static constexpr int k_many_trials = 6;
  static constexpr int k_last_trial = 8;

  const SearchOptions& options_;
  const std::function<TrialResult(std::int64_t)>& run_trial_;
  std::int64_t least_ = 1;
  std::int64_t fits_ = 0;        // the largest that did
  std::int64_t fails_ = k_none;  // the least that did not
  std::int64_t peak_ = 0;
  int failures_ = 0;
  bool last_failed_ = false;
  std::vector<Trial> trials_;
  std::vector<Point> points_;
};

}  // namespace

SearchResult search_largest_micro_batch(const SearchOptions& options,
                                        const std::function<TrialResult(std::int64_t size)>& run_trial) {
  return Search(options, run_trial).run();
}

std::int64_t apply_margin(std::int64_t largest, std::int64_t min_micro_batch, double margin) {
  const double kept = (1.0 - margin) * static_cast<double>(largest);
  return std::max(min_micro_batch, static_cast<std::int64_t>(std::ceil(kept - 1e-9)));
}

std::int64_t round_for_kernels(std::int64_t size, std::int64_t min_micro_batch) {
  constexpr double k_most_lost = 0.05;
  for (std::int64_t unit = 64; unit > 1; unit /= 2) {
    const std::int64_t rounded = size / unit * unit;
    if (rounded >= min_micro_batch && static_cast<double>(size - rounded) < k_most_lost * static_cast<double>(size))
      return rounded;
  }
  return size;
}

std::vector<std::int64_t> sizes_to_time(std::int64_t min_size, std::int64_t max_size, int most) {
  std::set<std::int64_t> sizes = {min_size, max_size};
  const double ratio = static_cast<double>(max_size) / static_cast<double>(min_size);
  for (int i = 1; i < most - 1; ++i) {
    sizes.insert(std::clamp(
        static_cast<std::int64_t>(std::llround(static_cast<double>(min_size) * std::pow(ratio, i / (most - 1.0)))),
        min_size, max_size));
  }
  return {sizes.begin(), sizes.end()};
}

}  // namespace onebatch
