// Some samples of a data set, as a data set.
#pragma once

#include "trainer/data/dataset.hpp"

namespace onebatch {

/// Whether a subset's samples get the random changes of training that its data set knows.
enum class SampleChanges { kept, none };

/// What is random of a sample is drawn by the number that it has in the whole. Classes are the whole's, so that a model
/// is the same one whichever samples it sees; so are the labels that are looked through.
class Subset final : public Dataset {
 public:
  /// `samples`: their numbers in `whole`, each once. Throws std::out_of_range where the whole has none of a number.
  Subset(std::shared_ptr<const Dataset> whole, std::vector<std::int64_t> samples, SampleChanges changes);

  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  std::vector<std::int64_t> sample_shape() const override { return whole_->sample_shape(); }
  std::int64_t num_classes() const override { return whole_->num_classes(); }
  std::optional<LabelRange> labels() const override { return whole_->labels(); }
  std::optional<std::int64_t> class_of(std::int64_t sample) const override {
    return whole_->class_of(in_whole(sample));
  }
  std::int64_t origin_of(std::int64_t sample) const override { return whole_->origin_of(in_whole(sample)); }
  std::span<const std::int64_t> lengths() const override { return lengths_; }
  std::string name_of(std::size_t tensor) const override { return whole_->name_of(tensor); }
  std::vector<std::string> class_names() const override { return whole_->class_names(); }
  std::string digest() const override { return whole_->digest(); }
  std::string warning() const override { return whole_->warning(); }
  std::vector<std::string> take_complaints() const override { return whole_->take_complaints(); }
  bool has_complaints() const override { return whole_->has_complaints(); }
  bool changes_samples() const override { return changes_ == SampleChanges::kept && whole_->changes_samples(); }
  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override;
  Batch gather_cut(std::span<const std::int64_t> indices, at::ScalarType type, std::int64_t length) const override;
  Batch read(std::span<const std::int64_t> indices, at::ScalarType type) const override;
  Batch read_changed(std::span<const std::int64_t> indices, at::ScalarType type, const Draw& draw) const override;
  std::vector<std::int64_t> costliest(std::int64_t count) const override;

 private:
  [[nodiscard]] std::int64_t in_whole(std::int64_t sample) const {
    return samples_.at(static_cast<std::size_t>(sample));
  }
  [[nodiscard]] std::vector<std::int64_t> in_whole(std::span<const std::int64_t> samples) const;

  std::shared_ptr<const Dataset> whole_;
  std::vector<std::int64_t> samples_;
  std::vector<std::int64_t> lengths_;
  SampleChanges changes_;
};

}  // namespace onebatch
