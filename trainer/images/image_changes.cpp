#include "trainer/images/image_changes.hpp"

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

// Half to even, as Python's round().
std::int64_t rounded(double value) {
  return static_cast<std::int64_t>(std::nearbyint(value));
}

ImageBox centred(const ImageSize& size, std::int64_t height, std::int64_t width) {
  return {(size.height - height) / 2, (size.width - width) / 2, height, width};
}

ImageBox largest_crop(const ImageSize& size, const std::array<double, 2>& ratio) {
  const auto height = static_cast<double>(size.height);
  const auto width = static_cast<double>(size.width);
  if (width / height < ratio[0])
    return centred(size, std::clamp<std::int64_t>(rounded(width / ratio[0]), 1, size.height), size.width);
  if (width / height > ratio[1])
    return centred(size, size.height, std::clamp<std::int64_t>(rounded(height * ratio[1]), 1, size.width));
  return {0, 0, size.height, size.width};
}

}  // namespace

ImageBox draw_crop(const ImageSize& size, const AugmentConfiguration& augment, Draws& draws) {
  const auto area = static_cast<double>(size.height * size.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double part = area * draws.uniform(augment.crop_scale[0], augment.crop_scale[1]);
    const double shape = std::exp(draws.uniform(std::log(augment.crop_ratio[0]), std::log(augment.crop_ratio[1])));
    const std::int64_t width = rounded(std::sqrt(part * shape));
    const std::int64_t height = rounded(std::sqrt(part / shape));
    if (width < 1 || height < 1 || width > size.width || height > size.height) continue;
    const std::int64_t top = draws.below(size.height - height + 1);
    return {top, draws.below(size.width - width + 1), height, width};
  }
  return largest_crop(size, augment.crop_ratio);
}

void draw_shift(Image& image, std::int64_t most, Draws& draws) {
  const std::int64_t down = draws.below(2 * most + 1) - most;
  const std::int64_t right = draws.below(2 * most + 1) - most;
  const Image from = image;
  std::ranges::fill(image.pixels, std::uint8_t{0});
  const std::int64_t first = std::max<std::int64_t>(0, right);
  const std::int64_t last = std::min(from.width, from.width + right);
  if (first >= last) return;
  for (std::int64_t y = std::max<std::int64_t>(0, down); y < std::min(from.height, from.height + down); ++y) {
    const std::uint8_t* row = from.row(y - down);
    std::copy(row + (first - right) * from.channels, row + (last - right) * from.channels,
              image.row(y) + first * from.channels);
  }
}

void mirror(Image& image) {
  for (std::int64_t y = 0; y < image.height; ++y) {
    std::uint8_t* row = image.row(y);
    for (std::int64_t left = 0, right = image.width - 1; left < right; ++left, --right) {
      for (std::int64_t c = 0; c < image.channels; ++c)
        std::swap(row[left * image.channels + c], row[right * image.channels + c]);
    }
  }
}

}  // namespace onebatch
