// The search for the largest micro-batch that fits: pure, steered by trials that somebody else runs.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/base/profile.hpp"

#include <functional>

namespace onebatch {

struct SearchOptions {
  ProbeMode mode = ProbeMode::model;
  std::int64_t limit_bytes = 0;     // of the device; 0 = unknown (then only out-of-memory tells)
  std::int64_t resident_bytes = 0;  // held before a trial
  std::int64_t block_bytes = 0;     // in which the device's allocator takes memory
  std::int64_t max_size = 8192;     // probe.max_val, the global batch and the data set, whichever is least
  std::int64_t init_size = 2;       // power and binsearch start here
  std::int64_t max_trials = 25;
  bool largest_is_wanted = false;  // max_size is the user's own: tried even where a search would end before it
};

/// What a trial of one size said. `refused` is a model's word that it cannot take so few samples (BatchNorm at one).
struct TrialResult {
  Trial trial;
  std::optional<std::string> refused;
};

struct SearchResult {
  std::int64_t min_micro_batch = 1;
  std::int64_t largest_micro_batch = 0;  // 0 = not even the least fits
  std::int64_t peak_bytes = 0;           // at the largest
  std::vector<Trial> trials;
};

/// Runs trials until the largest size is known. A size is only ever returned if a trial of it fitted. Exceptions of
/// `run_trial` pass through (Note [Only out-of-memory means does not fit]); a refusal above two samples is thrown as
/// UserError with the model's words.
SearchResult search_largest_micro_batch(const SearchOptions& options,
                                        const std::function<TrialResult(std::int64_t size)>& run_trial);

/// The size that the plan may use: `margin` of the largest is held back, at least one sample and never less than
/// `min_micro_batch`. ceil((1 - margin) * largest).
[[nodiscard]] std::int64_t apply_margin(std::int64_t largest, std::int64_t min_micro_batch, double margin);

/// The largest size up to `size` that kernels like: a multiple of the greatest power of two up to 64 that costs less
/// than 5 % of it, and never less than `min_micro_batch`.
[[nodiscard]] std::int64_t round_for_kernels(std::int64_t size, std::int64_t min_micro_batch);

/// Sizes whose times make a good cost table for a planner that may use `min` to `max`: ascending, both ends included,
/// up to `most` of them, which is at least 2.
[[nodiscard]] std::vector<std::int64_t> sizes_to_time(std::int64_t min_size, std::int64_t max_size, int most);

}  // namespace onebatch
