#include "trainer/data/image_sheet.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/nan_to_num.h>

#include <algorithm>

namespace onebatch {
namespace {

constexpr std::int64_t k_gap = 2;              // pixels between two images
constexpr std::int64_t k_least_height = 48;    // of an image; smaller ones are enlarged
constexpr std::int64_t k_largest_image = 256;  // pixels either way; larger ones are thinned out
constexpr int k_background = 128;

at::Tensor as_bytes(const at::Tensor& images) {
  if (images.scalar_type() == at::kByte) return images;
  const at::Tensor numbers = images.to(at::kFloat).nan_to_num(0.0, 0.0, 0.0);
  const double least = numbers.min().item<double>();
  const double range = std::max(numbers.max().item<double>() - least, 1e-30);
  return numbers.sub(least).mul(255.0 / range).round().clamp(0, 255).to(at::kByte);
}

// Whole pixels are repeated or left out.
at::Tensor resized(const at::Tensor& images) {
  const std::int64_t larger = std::max(images.size(2), images.size(3));
  const std::int64_t step = (larger + k_largest_image - 1) / k_largest_image;
  if (step > 1) return images.slice(2, 0, {}, step).slice(3, 0, {}, step);
  const std::int64_t times = std::max<std::int64_t>(1, k_least_height / larger);
  return images.repeat_interleave(times, 2).repeat_interleave(times, 3);
}

}  // namespace

SheetOfImages sheet_of(const at::Tensor& images, std::int64_t columns) {
  at::Tensor bytes = resized(as_bytes(images));
  if (bytes.size(1) != 3) bytes = bytes.narrow(1, 0, 1);
  const std::int64_t rows = (bytes.size(0) + columns - 1) / columns;
  const std::int64_t height = bytes.size(2);
  const std::int64_t width = bytes.size(3);
  const at::Tensor sheet = at::full({rows * (height + k_gap) + k_gap, columns * (width + k_gap) + k_gap, bytes.size(1)},
                                    k_background, at::TensorOptions().dtype(at::kByte));
  for (std::int64_t i = 0; i < bytes.size(0); ++i)
    sheet.narrow(0, k_gap + i / columns * (height + k_gap), height)
        .narrow(1, k_gap + i % columns * (width + k_gap), width)
        .copy_(bytes[i].permute({1, 2, 0}));
  SheetOfImages made{static_cast<std::uint32_t>(sheet.size(1)),
                     static_cast<std::uint32_t>(sheet.size(0)),
                     static_cast<std::uint32_t>(sheet.size(2)),
                     {}};
  const auto* pixels = sheet.const_data_ptr<std::uint8_t>();
  made.pixels.assign(pixels, pixels + sheet.numel());
  return made;
}

}  // namespace onebatch
