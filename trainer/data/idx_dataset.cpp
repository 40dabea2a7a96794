// Images and labels in IDX files, as MNIST's: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-…; plain or gzip.
#include "trainer/base/error.hpp"
#include "trainer/data/dataset_kind.hpp"
#include "trainer/data/idx.hpp"
#include "trainer/io/checksum.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace onebatch {
namespace {

struct Labelled {
  IdxArray images;
  IdxArray labels;
};

Labelled read_pair(const std::filesystem::path& folder, const std::string& prefix, const std::string& key) {
  const auto images = find_idx(folder, prefix + "-images-idx3-ubyte", key);
  const auto labels = find_idx(folder, prefix + "-labels-idx1-ubyte", key);
  Labelled pair{read_idx(images, 3), read_idx(labels, 1)};
  if (pair.images.shape[0] != pair.labels.shape[0]) {
    throw UserError(fmt::format("{} has {} images, but {} has {} labels", images.string(), pair.images.shape[0],
                                labels.string(), pair.labels.shape[0]));
  }
  if (pair.images.values.empty()) throw UserError(images.string() + " holds no image");
  return pair;
}

std::uint8_t largest(const IdxArray& array) {
  return *std::max_element(array.values.begin(), array.values.end());
}

// Of the labels that count.
std::optional<LabelRange> range_of(const IdxArray& labels, std::optional<std::int64_t> ignored) {
  std::optional<LabelRange> range;
  for (std::size_t i = 0; i < labels.values.size(); ++i) {
    const Label label{labels.values[i], static_cast<std::int64_t>(i)};
    if (label.value == ignored) continue;
    if (!range) range = LabelRange{label, label};
    if (label.value < range->least.value) range->least = label;
    if (label.value > range->largest.value) range->largest = label;
  }
  return range;
}

class IdxDataset final : public Dataset {
 public:
  IdxDataset(Labelled data, std::uint8_t largest_pixel, std::int64_t num_classes, std::optional<LabelRange> labels)
      : data_(std::move(data)),
        divisor_(std::max<double>(1.0, largest_pixel)),
        num_classes_(num_classes),
        labels_(labels) {
    ChecksumStream stream;
    for (const IdxArray* array : {&data_.images, &data_.labels}) stream.update(std::as_bytes(std::span(array->values)));
    stream.update(std::as_bytes(std::span(&largest_pixel, 1)));
    digest_ = to_text(stream.value());
  }

  std::int64_t size() const override { return data_.labels.shape[0]; }
  std::vector<std::int64_t> sample_shape() const override { return {1, data_.images.shape[1], data_.images.shape[2]}; }
  std::int64_t num_classes() const override { return num_classes_; }
  std::optional<LabelRange> labels() const override { return labels_; }
  std::optional<std::int64_t> class_of(std::int64_t sample) const override {
    return data_.labels.values.at(static_cast<std::size_t>(sample));
  }
  std::string digest() const override { return digest_; }
  std::string name_of(std::size_t tensor) const override { return tensor == 0 ? "the images" : "the labels"; }

  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    const at::Tensor inputs = at::empty({count, 1, data_.images.shape[1], data_.images.shape[2]}, filled_as(type));
    const at::Tensor targets = at::empty({count}, at::TensorOptions().dtype(at::kLong));
    if (type == at::kDouble) {
      fill(indices, inputs.mutable_data_ptr<double>());
    } else {
      fill(indices, inputs.mutable_data_ptr<float>());
    }
    std::int64_t* label = targets.mutable_data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) *label++ = data_.labels.values.at(static_cast<std::size_t>(index));
    return {{inputs.to(type)}, targets, {}};
  }

 private:
  template <typename T>
  void fill(std::span<const std::int64_t> indices, T* to) const {
    const std::int64_t pixels = data_.images.shape[1] * data_.images.shape[2];
    const auto divisor = static_cast<T>(divisor_);
    for (const std::int64_t index : indices) {
      if (index < 0 || index >= size())
        throw std::out_of_range(fmt::format("sample {} of a data set of {}", index, size()));
      const std::uint8_t* from = data_.images.values.data() + index * pixels;
      for (std::int64_t i = 0; i < pixels; ++i) *to++ = static_cast<T>(from[i]) / divisor;
    }
  }

  Labelled data_;
  std::string digest_;
  double divisor_;
  std::int64_t num_classes_;
  std::optional<LabelRange> labels_;
};

// Where the training files are: in the training data's folder, or, of validation data without such, beside them.
std::filesystem::path folder_of_training(const std::filesystem::path& folder, const OpenRequest& request) {
  return request.training_path.empty() ? folder : std::filesystem::path(request.training_path);
}

// Pixels are divided by the largest pixel of the training images, so that inputs [N, 1, H, W] lie in [0, 1].
std::unique_ptr<Dataset> open_idx_dataset(const std::filesystem::path& folder, const OpenRequest& request) {
  const std::optional<std::int64_t> ignored = request.ignored;
  std::optional<Labelled> validation;
  if (request.split == Split::validation)
    validation = read_pair(folder, "t10k", "data.validation.path (data.path, where that is left out)");
  // Scale and classes are the training files', whichever split is asked for: both must mean the same to a model.
  Labelled train = read_pair(folder_of_training(folder, request), "train", "data.path");
  const std::uint8_t largest_pixel = largest(train.images);
  const auto labels = range_of(train.labels, ignored);
  const std::int64_t num_classes = labels ? labels->largest.value + 1 : 1;
  if (!validation) return std::make_unique<IdxDataset>(std::move(train), largest_pixel, num_classes, labels);
  const auto validated = range_of(validation->labels, ignored);
  if (validated && validated->largest.value >= num_classes) {
    throw UserError(fmt::format("{}: the t10k labels go up to {}, the train labels only to {}", folder.string(),
                                validated->largest.value, num_classes - 1));
  }
  return std::make_unique<IdxDataset>(*std::move(validation), largest_pixel, num_classes, validated);
}

}  // namespace

DatasetKind idx_dataset_kind() {
  DatasetKind kind;
  kind.name = "idx";
  kind.check = [](const DatasetConfiguration& data, const CheckRequest& request) {
    if (data.path.empty())
      request.complain("path", "is needed for data.kind = \"idx\": the folder that holds train-images-idx3-ubyte");
  };
  kind.open = [](const DatasetConfiguration& data, const OpenRequest& request) {
    return open_idx_dataset(data.path, request);
  };
  kind.count_samples = [](const DatasetConfiguration& data) {
    return read_idx(find_idx(data.path, "train-labels-idx1-ubyte"), 1).shape[0];
  };
  return kind;
}

}  // namespace onebatch
