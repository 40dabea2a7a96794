#include "trainer/data/images_dataset.hpp"

#include "trainer/data/image_reader.hpp"
#include "trainer/images/image_mixing.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace onebatch {
namespace {

// A skipped image is all of it.
constexpr std::uint8_t k_grey = 128;

// Of ImageNet's images, as torchvision's models take them; grey: of its channels' mean.
PixelScale scale_of(const DatasetConfiguration& data) {
  const bool grey = data.channels == 1;
  PixelScale scale{data.mean, data.deviation};
  if (scale.mean.empty()) scale.mean = grey ? std::vector{0.449} : std::vector{0.485, 0.456, 0.406};
  if (scale.deviation.empty()) scale.deviation = grey ? std::vector{0.226} : std::vector{0.229, 0.224, 0.225};
  return scale;
}

// torchvision's models are validated at 224 pixels out of the middle of 256.
std::int64_t shorter_side_of(const DatasetConfiguration& data) {
  if (data.resize > 0) return data.resize;
  return (std::max(data.image_size[0], data.image_size[1]) * 256 + 112) / 224;
}

// The channels of [height, width, channels] one after the other.
void copy_planes(const Image& image, std::uint8_t* to) {
  const auto pixels = static_cast<std::size_t>(image.height * image.width);
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const std::uint8_t* from = image.pixels.data() + c;
    for (std::size_t i = 0; i < pixels; ++i) *to++ = from[i * channels];
  }
}

class ImagesDataset final : public Dataset {
 public:
  ImagesDataset(const DatasetConfiguration& data, std::unique_ptr<ImageFiles> files, const OpenRequest& request)
      : reader_(std::move(files), {{data.image_size[0], data.image_size[1]}, data.channels, shorter_side_of(data)},
                request.augment, data.on_broken),
        scale_(scale_of(data)),
        augment_(request.augment),
        changes_(request.split == Split::train),
        ignored_(request.ignored) {
    find_labels();
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(reader_.files().labels().size()); }
  std::vector<std::int64_t> sample_shape() const override {
    const ImageForm& form = reader_.form();
    return {form.channels, form.size.height, form.size.width};
  }
  std::int64_t num_classes() const override { return num_classes_; }
  std::optional<LabelRange> labels() const override { return labels_; }
  std::optional<std::int64_t> class_of(std::int64_t sample) const override { return label_of(sample); }
  std::vector<std::string> class_names() const override { return reader_.files().classes(); }
  std::string digest() const override { return reader_.files().digest(); }
  std::string name_of(std::size_t tensor) const override { return tensor == 0 ? "the images" : "the images' classes"; }
  std::vector<std::string> take_complaints() const override { return reader_.take_complaints(); }
  bool has_complaints() const override { return reader_.has_complaints(); }
  bool changes_samples() const override { return changes_; }

  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    return read(indices, type).to_numbers(type);
  }

  Batch read(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    Batch batch = empty_batch(indices.size(), 1, weighs() ? filled_as(type) : at::kByte);
    for (std::size_t i = 0; i < indices.size(); ++i)
      put(batch, i, {reader_.read(indices[i]), label_of(indices[i]), label_of(indices[i]), 1.0});
    return batch;
  }

  Batch read_changed(std::span<const std::int64_t> indices, at::ScalarType type, const Draw& draw) const override {
    const bool mixes = is_mixing(augment_);
    Batch batch = empty_batch(indices.size(), mixes ? 2 : 1, weighs() || mixes ? filled_as(type) : at::kByte);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (mixes)
        put(batch, i, mixed(indices[i], draw));
      else
        put(batch, i, {reader_.read_changed(indices[i], draw), label_of(indices[i]), label_of(indices[i]), 1.0});
    }
    return batch;
  }

 private:
  struct Sample {
    std::optional<Image> image;
    std::int64_t label;
    std::int64_t partners;
    double share;  // of the label, the rest is the partner's
  };

  // Whether batches have weights: all or none of them, so that they are of one form.
  [[nodiscard]] bool weighs() const { return reader_.on_broken() == OnBroken::skip; }

  std::int64_t label_of(std::int64_t sample) const {
    if (sample < 0 || sample >= size())
      throw std::out_of_range(fmt::format("sample {} of a data set of {}", sample, size()));
    return reader_.files().labels()[static_cast<std::size_t>(sample)];
  }

  void find_labels() {
    const auto& labels = reader_.files().labels();
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const Label label{labels[i], static_cast<std::int64_t>(i)};
      if (label.value == ignored_) continue;
      if (!labels_) labels_ = LabelRange{label, label};
      if (label.value < labels_->least.value) labels_->least = label;
      if (label.value > labels_->largest.value) labels_->largest = label;
    }
    const auto named = static_cast<std::int64_t>(reader_.files().classes().size());
    num_classes_ = named > 0 ? named : labels_ ? labels_->largest.value + 1 : 1;
  }

  // `weight_type`: kByte: no weights.
  Batch empty_batch(std::size_t count, std::int64_t labels, at::ScalarType weight_type) const {
    std::vector<std::int64_t> shape = sample_shape();
    shape.insert(shape.begin(), static_cast<std::int64_t>(count));
    std::vector<std::int64_t> of_labels = {static_cast<std::int64_t>(count)};
    if (labels > 1) of_labels.push_back(labels);
    Batch batch;
    batch.inputs = {at::empty(shape, at::TensorOptions().dtype(at::kByte))};
    batch.targets = at::empty(of_labels, at::TensorOptions().dtype(at::kLong));
    if (weight_type != at::kByte) batch.weights = at::empty(of_labels, at::TensorOptions().dtype(weight_type));
    batch.pixels = scale_;
    return batch;
  }

  void put(const Batch& batch, std::size_t row, const Sample& sample) const {
    const auto shape = sample_shape();
    const std::int64_t pixels = shape[0] * shape[1] * shape[2];
    std::uint8_t* to = batch.inputs.front().mutable_data_ptr<std::uint8_t>() + static_cast<std::int64_t>(row) * pixels;
    if (sample.image)
      copy_planes(*sample.image, to);
    else
      std::fill_n(to, pixels, k_grey);
    put_labels(batch, row, sample);
  }

  // A skipped image counts for nothing: neither in the loss, nor among what is right or wrong.
  void put_labels(const Batch& batch, std::size_t row, const Sample& sample) const {
    const std::size_t of_each = batch.targets.dim() > 1 ? 2 : 1;
    std::int64_t* labels = batch.targets.mutable_data_ptr<std::int64_t>() + row * of_each;
    labels[0] = sample.image ? sample.label : ignored_.value_or(sample.label);
    if (of_each > 1) labels[1] = sample.image ? sample.partners : labels[0];
    if (!batch.weights.defined()) return;
    const auto weigh = [&](auto* weights) {
      using T = std::remove_pointer_t<decltype(weights)>;
      const auto share = static_cast<T>(sample.share);
      weights[0] = sample.image ? share : T{0};
      if (of_each > 1) weights[1] = sample.image ? T{1} - share : T{0};
    };
    if (batch.weights.scalar_type() == at::kDouble)
      weigh(batch.weights.mutable_data_ptr<double>() + row * of_each);
    else
      weigh(batch.weights.mutable_data_ptr<float>() + row * of_each);
  }

  // With another of those that are trained with, as the same epoch trains with that one.
  Sample mixed(std::int64_t index, const Draw& draw) const {
    Sample sample{reader_.read_changed(index, draw), label_of(index), label_of(index), 1.0};
    if (!sample.image) return sample;
    const auto others = static_cast<std::int64_t>(draw.among.size());
    const Mix mix =
        draw_mix(augment_, {draw.seed, draw.epoch, index}, others > 0 ? others : size(), reader_.form().size);
    const std::int64_t other = others > 0 ? draw.among[static_cast<std::size_t>(mix.partner)] : mix.partner;
    const auto partner = reader_.read_changed(other, draw);
    if (!partner) return sample;
    apply(mix, *partner, *sample.image);
    sample.partners = label_of(other);
    sample.share = mix.share;
    return sample;
  }

  ImageReader reader_;
  PixelScale scale_;
  AugmentConfiguration augment_;
  bool changes_;
  std::optional<std::int64_t> ignored_;
  std::optional<LabelRange> labels_;
  std::int64_t num_classes_ = 0;
};

void check_form(const DatasetConfiguration& data, const CheckRequest& request) {
  if (data.image_size.size() != 2 || data.image_size[0] > 1 << 14 || data.image_size[1] > 1 << 14)
    return request.complain("image_size", "is needed for images: write [height, width], as [224, 224]");
  if (data.resize > 0 && data.resize < std::max(data.image_size[0], data.image_size[1]))
    request.complain("resize", fmt::format("cuts [{}, {}] out of fewer pixels: write {} or more", data.image_size[0],
                                           data.image_size[1], std::max(data.image_size[0], data.image_size[1])));
}

void check_crop_padding(const DatasetConfiguration& data, const CheckRequest& request) {
  const std::int64_t padding = request.configuration.data.augment.crop_padding;
  const std::int64_t pixels = data.image_size.empty() ? 0 : *std::ranges::min_element(data.image_size);
  if (pixels > 0 && padding >= pixels)
    request.complain("augment.crop_padding",
                     fmt::format("is {}: write less than the images' {} pixels", padding, pixels));
}

}  // namespace

std::unique_ptr<Dataset> images_dataset(const DatasetConfiguration& data, std::unique_ptr<ImageFiles> files,
                                        const OpenRequest& request) {
  return std::make_unique<ImagesDataset>(data, std::move(files), request);
}

void check_images(const DatasetConfiguration& data, const CheckRequest& request) {
  if (data.channels == 2) request.complain("channels", "is 2: write 3 or 1");
  for (const auto* list : {&data.mean, &data.deviation}) {
    if (!list->empty() && static_cast<std::int64_t>(list->size()) != data.channels)
      request.complain(list == &data.mean ? "mean" : "std",
                       fmt::format("has {} numbers: write one per channel, {}", list->size(), data.channels));
  }
  check_form(data, request);
  const Configuration& all = request.configuration;
  if (&data == &all.data.train) check_crop_padding(data, request);
  if (is_mixing(all.data.augment) && &data == &all.data.train && all.loss.kind != "cross_entropy")
    request.complain("augment.mixup_alpha", "and cutmix_alpha need loss.kind = \"cross_entropy\", which mixes labels");
}

}  // namespace onebatch
