#include "trainer/data/subset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

namespace onebatch {

Subset::Subset(std::shared_ptr<const Dataset> whole, std::vector<std::int64_t> samples, SampleChanges changes)
    : whole_(std::move(whole)), samples_(std::move(samples)), changes_(changes) {
  const auto lengths = whole_->lengths();
  for (const std::int64_t sample : samples_) {
    if (sample < 0 || sample >= whole_->size())
      throw std::out_of_range(fmt::format("sample {} of a data set of {}", sample, whole_->size()));
    if (!lengths.empty()) lengths_.push_back(lengths[static_cast<std::size_t>(sample)]);
  }
}

std::vector<std::int64_t> Subset::in_whole(std::span<const std::int64_t> samples) const {
  std::vector<std::int64_t> mapped(samples.size());
  std::ranges::transform(samples, mapped.begin(), [this](std::int64_t sample) { return in_whole(sample); });
  return mapped;
}

Batch Subset::gather(std::span<const std::int64_t> indices, at::ScalarType type) const {
  // Of none the whole says how it looks: what all of its sequences are padded to.
  return whole_->gather(in_whole(indices), type);
}

Batch Subset::gather_cut(std::span<const std::int64_t> indices, at::ScalarType type, std::int64_t length) const {
  return whole_->gather_cut(in_whole(indices), type, length);
}

Batch Subset::read(std::span<const std::int64_t> indices, at::ScalarType type) const {
  return whole_->read(in_whole(indices), type);
}

Batch Subset::read_changed(std::span<const std::int64_t> indices, at::ScalarType type, const Draw& draw) const {
  return changes_samples() ? whole_->read_changed(in_whole(indices), type, {draw.seed, draw.epoch, samples_})
                           : read(indices, type);
}

// The whole's, as far as they are among these.
std::vector<std::int64_t> Subset::costliest(std::int64_t count) const {
  std::unordered_map<std::int64_t, std::int64_t> places;
  for (std::size_t i = 0; i < samples_.size(); ++i) places.emplace(samples_[i], static_cast<std::int64_t>(i));
  std::vector<std::int64_t> ours;
  for (const std::int64_t sample : whole_->costliest(whole_->size())) {
    if (const auto found = places.find(sample); found != places.end()) ours.push_back(found->second);
  }
  if (ours.empty()) return Dataset::costliest(count);
  std::vector<std::int64_t> chosen(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i] = ours[i % ours.size()];
  return chosen;
}

}  // namespace onebatch
