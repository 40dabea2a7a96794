// Which samples of a data set take part: functions of the seed, of what the samples are, and of nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace onebatch {

/// A share of some samples, and the others. Both in the order that the samples had.
struct SplitSamples {
  std::vector<std::int64_t> chosen;
  std::vector<std::int64_t> others;
};

/// Draws round(fraction * count) of `samples`, by `key` and their numbers. Of each class alike: `classes` has one for
/// each sample, or none where all are alike. A smaller fraction's samples are among a larger one's.
///
/// Each class's samples get the places (r + u) / n, r = 0 … n - 1, in an order drawn by the key, with a u of the
/// class's own from [0, 1); the lowest places over all classes are chosen (systematic sampling with random starts:
/// Cochran, "Sampling Techniques", chapter 8).
SplitSamples split_samples(std::span<const std::int64_t> samples, std::span<const std::int64_t> classes,
                           double fraction, std::uint64_t key);

/// How many split_samples() chooses.
std::int64_t share_of(std::int64_t count, double fraction);

}  // namespace onebatch
