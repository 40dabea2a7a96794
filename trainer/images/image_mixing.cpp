#include "trainer/images/image_mixing.hpp"

#include "trainer/images/draws.hpp"

#include <algorithm>

namespace onebatch {
namespace {

// Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); below 1 by one more uniform number.
double gamma(double alpha, Draws& draws) {
  if (alpha < 1.0) {
    const double raised = gamma(alpha + 1.0, draws);
    return raised * std::pow(1.0 - draws.uniform(), 1.0 / alpha);
  }
  const double d = alpha - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = draws.normal();
    const double v = std::pow(1.0 + c * x, 3.0);
    if (v <= 0.0) continue;
    if (std::log(1.0 - draws.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

// Both may be 0 where alpha is tiny: the mean, then.
double beta(double alpha, Draws& draws) {
  const double first = gamma(alpha, draws);
  const double second = gamma(alpha, draws);
  return first + second > 0.0 ? first / (first + second) : (draws.coin() ? 1.0 : 0.0);
}

ImageBox draw_box(double share, const ImageSize& size, Draws& draws) {
  const std::int64_t column = draws.below(size.width);
  const std::int64_t row = draws.below(size.height);
  const double half = 0.5 * std::sqrt(1.0 - share);
  const auto half_width = static_cast<std::int64_t>(half * static_cast<double>(size.width));
  const auto half_height = static_cast<std::int64_t>(half * static_cast<double>(size.height));
  const std::int64_t left = std::max<std::int64_t>(0, column - half_width);
  const std::int64_t top = std::max<std::int64_t>(0, row - half_height);
  return {top, left, std::min(size.height, row + half_height) - top, std::min(size.width, column + half_width) - left};
}

}  // namespace

Mix draw_mix(const AugmentConfiguration& augment, const MixKey& key, std::int64_t samples, const ImageSize& size) {
  // Another stream than what the image itself is changed by.
  Draws draws(key.seed ^ 0x6d6978ULL, key.epoch, key.sample);
  Mix mix;
  mix.partner = draws.below(samples);
  mix.cut = augment.mixup_alpha > 0.0 && augment.cutmix_alpha > 0.0 ? draws.coin() : augment.cutmix_alpha > 0.0;
  mix.share = beta(mix.cut ? augment.cutmix_alpha : augment.mixup_alpha, draws);
  if (!mix.cut) return mix;
  mix.box = draw_box(mix.share, size, draws);
  mix.share = 1.0 - static_cast<double>(mix.box.height * mix.box.width) / static_cast<double>(size.height * size.width);
  return mix;
}

void apply(const Mix& mix, const Image& partner, Image& image) {
  if (!mix.cut) {
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
      image.pixels[i] =
          static_cast<std::uint8_t>(mix.share * image.pixels[i] + (1.0 - mix.share) * partner.pixels[i] + 0.5);
    return;
  }
  for (std::int64_t y = mix.box.top; y < mix.box.top + mix.box.height; ++y) {
    const std::int64_t first = mix.box.left * image.channels;
    std::copy_n(partner.row(y) + first, mix.box.width * image.channels, image.row(y) + first);
  }
}

}  // namespace onebatch
