#include "trainer/data/augment.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/mix_bits.hpp"
#include "trainer/base/shape_text.hpp"

#include <ATen/Dispatch.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>

namespace onebatch {
namespace {

bool asked_for(const AugmentConfiguration& configuration) {
  return configuration.crop_padding > 0 || configuration.horizontal_flip;
}

struct Shift {
  std::int64_t down = 0;  // pixels; negative: up
  std::int64_t right = 0;
  bool mirrored = false;
};

Shift shift_of(const AugmentConfiguration& configuration, std::uint64_t key) {
  const std::int64_t padding = configuration.crop_padding;
  const auto shift = [&](std::uint64_t bits) {
    return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(2 * padding + 1)) - padding;
  };
  return {shift(mix_bits(key)), shift(mix_bits(key + 1)),
          configuration.horizontal_flip && (mix_bits(key + 2) >> 63) != 0};
}

// One channel: what comes from outside stays as it is.
template <typename T>
void copy_channel(const T* from, T* to, std::int64_t height, std::int64_t width, const Shift& by) {
  const std::int64_t first = std::max<std::int64_t>(0, by.right);
  const std::int64_t last = std::min(width, width + by.right);
  for (std::int64_t row = std::max<std::int64_t>(0, by.down); row < std::min(height, height + by.down); ++row) {
    const T* source = from + (row - by.down) * width - by.right;
    T* target = to + row * width;
    for (std::int64_t column = first; column < last; ++column)
      target[by.mirrored ? width - 1 - column : column] = source[column];
  }
}

}  // namespace

void check_augmentation(const AugmentConfiguration& configuration, const Dataset& data) {
  if (!asked_for(configuration) || data.changes_samples()) return;
  const auto shape = data.sample_shape();
  if (shape.size() != 3)
    throw UserError(fmt::format("a sample is {}; data.augment needs images [C, H, W]", shape_text(shape)));
  const std::int64_t first = 0;
  const at::Tensor images = data.gather({&first, 1}, at::kFloat).inputs.front();
  if (!images.is_floating_point())
    throw UserError(fmt::format("the images are {}; store float16 or float32, or write data.mean, to augment",
                                c10::toString(images.scalar_type())));
  if (configuration.crop_padding >= std::min(shape[1], shape[2]))
    throw UserError(fmt::format("data.augment.crop_padding = {}: write less than the images' {} pixels",
                                configuration.crop_padding, std::min(shape[1], shape[2])));
}

at::Tensor augmented(const at::Tensor& images, const AugmentConfiguration& configuration, const Draw& draw,
                     std::span<const std::int64_t> samples) {
  if (!asked_for(configuration)) return images;
  const at::Tensor source = images.contiguous();
  const at::Tensor made = at::zeros_like(source);
  const std::int64_t channels = source.size(1);
  const std::int64_t pixels = source.size(2) * source.size(3);
  const std::uint64_t key =
      mix_bits(mix_bits(draw.seed ^ 0x6175676d656e74ULL) + static_cast<std::uint64_t>(draw.epoch));
  AT_DISPATCH_FLOATING_TYPES_AND3(at::kByte, at::kHalf, at::kBFloat16, source.scalar_type(), "augmented", [&] {
    const auto* from = source.const_data_ptr<scalar_t>();
    auto* to = made.mutable_data_ptr<scalar_t>();
    for (const std::int64_t sample : samples) {
      const Shift by = shift_of(configuration, mix_bits(key ^ static_cast<std::uint64_t>(sample)));
      for (std::int64_t channel = 0; channel < channels; ++channel, from += pixels, to += pixels)
        copy_channel(from, to, source.size(2), source.size(3), by);
    }
  });
  return made;
}

Batch TrainingData::gather(std::span<const std::int64_t> indices, at::ScalarType type) const {
  return read(indices, type).to_numbers(type);
}

Batch TrainingData::gather_cut(std::span<const std::int64_t> indices, at::ScalarType type, std::int64_t length) const {
  return lengths().empty() ? gather(indices, type) : data_.gather_cut(indices, type, length);
}

Batch TrainingData::read(std::span<const std::int64_t> indices, at::ScalarType type) const {
  if (data_.changes_samples()) return data_.read_changed(indices, type, draw_);
  Batch batch = data_.read(indices, type);
  batch.inputs.front() = augmented(batch.inputs.front(), augment_, draw_, origins_of(data_, indices));
  return batch;
}

}  // namespace onebatch
