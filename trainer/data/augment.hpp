// Augmentation of training images: what is drawn for a sample depends on seed, epoch and sample alone, so that any plan
// sees the same images.
#pragma once

#include "trainer/data/dataset.hpp"

namespace onebatch {

/// Throws UserError where the data is no images.
void check_augmentation(const AugmentConfiguration& configuration, const Dataset& data);

/// Of images [N, C, H, W] on the CPU, of a floating-point type or uint8: each shifted by up to `crop_padding` pixels
/// either way, with zeros coming in (torchvision's RandomCrop of the padded image), and mirrored with probability 1/2.
/// `samples` are the rows' indices. Returns the images themselves where nothing is asked for.
at::Tensor augmented(const at::Tensor& images, const AugmentConfiguration& configuration, const Draw& draw,
                     std::span<const std::int64_t> samples);

/// The samples as an epoch trains with them. Keeps a reference to the data.
class TrainingData final : public Dataset {
 public:
  TrainingData(const Dataset& data, const AugmentConfiguration& augment, const Draw& draw)
      : data_(data), augment_(augment), draw_(draw) {}

  std::int64_t size() const override { return data_.size(); }
  std::vector<std::int64_t> sample_shape() const override { return data_.sample_shape(); }
  std::int64_t num_classes() const override { return data_.num_classes(); }
  std::optional<LabelRange> labels() const override { return data_.labels(); }
  std::optional<std::int64_t> class_of(std::int64_t sample) const override { return data_.class_of(sample); }
  std::int64_t origin_of(std::int64_t sample) const override { return data_.origin_of(sample); }
  std::span<const std::int64_t> lengths() const override { return data_.lengths(); }
  std::vector<std::string> class_names() const override { return data_.class_names(); }
  std::string name_of(std::size_t tensor) const override { return data_.name_of(tensor); }
  std::vector<std::int64_t> costliest(std::int64_t count) const override { return data_.costliest(count); }
  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override;
  Batch gather_cut(std::span<const std::int64_t> indices, at::ScalarType type, std::int64_t length) const override;
  Batch read(std::span<const std::int64_t> indices, at::ScalarType type) const override;

 private:
  const Dataset& data_;
  AugmentConfiguration augment_;
  Draw draw_;
};

}  // namespace onebatch
