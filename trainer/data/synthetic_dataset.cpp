// Samples that are a pure function of their index: for trials, tests and measurements without data.
#include "trainer/base/error.hpp"
#include "trainer/base/mix_bits.hpp"
#include "trainer/data/dataset_kind.hpp"
#include "trainer/settings/key_types.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>

namespace onebatch {
namespace {

class SyntheticDataset final : public Dataset {
 public:
  SyntheticDataset(const DatasetConfiguration& configuration, std::uint64_t key)
      : configuration_(configuration),
        key_(key),
        width_(std::accumulate(configuration.shape.begin(), configuration.shape.end(), std::int64_t{1},
                               std::multiplies<>())) {}

  std::int64_t size() const override { return configuration_.size; }
  std::vector<std::int64_t> sample_shape() const override { return configuration_.shape; }
  std::int64_t num_classes() const override { return configuration_.num_classes; }

  std::optional<std::int64_t> class_of(std::int64_t sample) const override { return label_of(sample); }

  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    std::vector<std::int64_t> shape = {static_cast<std::int64_t>(indices.size())};
    shape.insert(shape.end(), configuration_.shape.begin(), configuration_.shape.end());
    const at::Tensor inputs = at::empty(shape, filled_as(type));
    const at::Tensor targets = at::empty({shape[0]}, at::TensorOptions().dtype(at::kLong));
    if (type == at::kDouble) {
      fill(indices, inputs.mutable_data_ptr<double>());
    } else {
      fill(indices, inputs.mutable_data_ptr<float>());
    }
    std::int64_t* label = targets.mutable_data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) *label++ = label_of(index);
    return {{inputs.to(type)}, targets, {}};
  }

 private:
  std::uint64_t sample_key(std::int64_t index) const {
    if (index < 0 || index >= size())
      throw std::out_of_range(fmt::format("sample {} of a data set of {}", index, size()));
    return mix_bits(key_ ^ static_cast<std::uint64_t>(index));
  }

  std::int64_t label_of(std::int64_t index) const {
    return static_cast<std::int64_t>(mix_bits(sample_key(index)) %
                                     static_cast<std::uint64_t>(configuration_.num_classes));
  }

  // Uniform on [-sqrt(3), sqrt(3)), which has variance 1: unlike a normal's logarithms and sines it is the same bits
  // everywhere. Two values of a draw's 64 bits.
  template <typename T>
  void fill(std::span<const std::int64_t> indices, T* to) const {
    const double step = 2.0 * std::sqrt(3.0) / 4294967296.0;
    const auto value = [&](std::uint64_t bits) {
      return static_cast<T>((static_cast<double>(bits & 0xffffffffULL) - 2147483648.0) * step);
    };
    for (const std::int64_t index : indices) {
      const std::uint64_t key = sample_key(index);
      for (std::int64_t i = 0; i < width_; i += 2) {
        const std::uint64_t bits = mix_bits(key + static_cast<std::uint64_t>(i));
        *to++ = value(bits);
        if (i + 1 < width_) *to++ = value(bits >> 32);
      }
    }
  }

  DatasetConfiguration configuration_;
  std::uint64_t key_;
  std::int64_t width_;
};

std::unique_ptr<Dataset> make_synthetic_dataset(const DatasetConfiguration& configuration, Split split,
                                                std::uint64_t seed) {
  if (configuration.size < 1) throw UserError(fmt::format("data.size = {}: write 1 or more", configuration.size));
  if (configuration.num_classes < 1)
    throw UserError(fmt::format("data.num_classes = {}: write 1 or more", configuration.num_classes));
  std::int64_t width = 1;
  for (const std::int64_t extent : configuration.shape) {
    if (extent < 1 || extent > (std::int64_t{1} << 31) || width > (std::int64_t{1} << 31) / extent)
      throw UserError("data.shape must hold sizes from 1, and not more than 2^31 values in all");
    width *= extent;
  }
  return std::make_unique<SyntheticDataset>(configuration, mix_bits(mix_bits(seed) + (split == Split::train ? 1 : 2)));
}

constexpr Changes k_both = Changes::result | Changes::probe;

std::vector<KeyOf<DatasetConfiguration>> synthetic_keys() {
  using D = DatasetConfiguration;
  return {integers_key({"shape", k_both, "synthetic: the shape of one sample", "", Elsewhere::ignored}, 1, &D::shape),
          integer_key({"num_classes", k_both, "synthetic", "", Elsewhere::ignored}, 1, std::int64_t{1} << 31,
                      &D::num_classes),
          integer_key({"size", Changes::result, "synthetic: how many samples", "", Elsewhere::ignored}, 1,
                      std::int64_t{1} << 40, &D::size)};
}

}  // namespace

DatasetKind synthetic_dataset_kind() {
  DatasetKind kind;
  kind.name = "synthetic";
  kind.keys = synthetic_keys();
  kind.open = [](const DatasetConfiguration& data, const OpenRequest& request) {
    return make_synthetic_dataset(data, request.split, request.seed);
  };
  kind.count_samples = [](const DatasetConfiguration& data) { return data.size; };
  return kind;
}

}  // namespace onebatch
