// How far sequences of unlike lengths are padded, where that is not the longest of those that are gathered.
#pragma once

#include "trainer/data/dataset.hpp"

namespace onebatch {

/// Of these samples, or of all; 0 where the data are no sequences of unlike lengths.
std::int64_t longest_of(const Dataset& data, std::span<const std::int64_t> samples);
std::int64_t longest_of(const Dataset& data);

/// The same samples, each padded to one length whichever are gathered together. Keeps a reference to the data.
class PaddedTo final : public Dataset {
 public:
  PaddedTo(const Dataset& data, std::int64_t length) : data_(data), length_(length) {}

  std::int64_t size() const override { return data_.size(); }
  std::vector<std::int64_t> sample_shape() const override { return data_.sample_shape(); }
  std::int64_t num_classes() const override { return data_.num_classes(); }
  std::optional<LabelRange> labels() const override { return data_.labels(); }
  std::optional<std::int64_t> class_of(std::int64_t sample) const override { return data_.class_of(sample); }
  std::int64_t origin_of(std::int64_t sample) const override { return data_.origin_of(sample); }
  std::span<const std::int64_t> lengths() const override { return data_.lengths(); }
  std::vector<std::string> class_names() const override { return data_.class_names(); }
  std::string name_of(std::size_t tensor) const override { return data_.name_of(tensor); }
  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    return data_.gather_cut(indices, type, length_);
  }
  Batch gather_cut(std::span<const std::int64_t> indices, at::ScalarType type, std::int64_t length) const override {
    return data_.gather_cut(indices, type, length);
  }
  Batch read(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    return lengths().empty() ? data_.read(indices, type) : gather(indices, type);
  }
  bool changes_samples() const override { return data_.changes_samples(); }
  Batch read_changed(std::span<const std::int64_t> indices, at::ScalarType type, const Draw& draw) const override {
    return lengths().empty() ? data_.read_changed(indices, type, draw) : gather(indices, type);
  }
  std::vector<std::int64_t> costliest(std::int64_t count) const override { return data_.costliest(count); }

 private:
  const Dataset& data_;
  std::int64_t length_;
};

}  // namespace onebatch
