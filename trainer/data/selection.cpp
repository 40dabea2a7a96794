#include "trainer/data/selection.hpp"

#include "trainer/base/mix_bits.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace onebatch {
namespace {

struct Candidate {
  std::int64_t of_class = 0;
  std::uint64_t bits = 0;  // drawn for the sample
  std::size_t index = 0;   // among the samples
  double place = 0.0;
};

double unit(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

std::vector<Candidate> candidates_of(std::span<const std::int64_t> samples, std::span<const std::int64_t> classes,
                                     std::uint64_t key) {
  std::vector<Candidate> all(samples.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = {classes.empty() ? 0 : classes[i], mix_bits(key ^ mix_bits(static_cast<std::uint64_t>(samples[i]))), i};
  std::ranges::sort(all, {}, [](const Candidate& one) { return std::tuple(one.of_class, one.bits, one.index); });
  return all;
}

// `all` lie class by class.
void place(std::vector<Candidate>& all, std::uint64_t key) {
  for (auto begin = all.begin(); begin != all.end();) {
    const auto end =
        std::find_if(begin, all.end(), [&](const Candidate& one) { return one.of_class != begin->of_class; });
    const double start = unit(mix_bits(mix_bits(key) + static_cast<std::uint64_t>(begin->of_class)));
    for (auto one = begin; one != end; ++one)
      one->place = (static_cast<double>(one - begin) + start) / static_cast<double>(end - begin);
    begin = end;
  }
}

}  // namespace

std::int64_t share_of(std::int64_t count, double fraction) {
  return std::clamp<std::int64_t>(std::llround(fraction * static_cast<double>(count)), 0, count);
}

SplitSamples split_samples(std::span<const std::int64_t> samples, std::span<const std::int64_t> classes,
                           double fraction, std::uint64_t key) {
  std::vector<Candidate> all = candidates_of(samples, classes, key);
  place(all, key);
  std::ranges::sort(all, {}, [](const Candidate& one) { return std::tuple(one.place, one.bits, one.index); });
  std::vector<bool> chosen(samples.size());
  const std::int64_t count = share_of(static_cast<std::int64_t>(samples.size()), fraction);
  for (std::int64_t i = 0; i < count; ++i) chosen[all[static_cast<std::size_t>(i)].index] = true;
  SplitSamples split;
  for (std::size_t i = 0; i < samples.size(); ++i) (chosen[i] ? split.chosen : split.others).push_back(samples[i]);
  return split;
}

}  // namespace onebatch
