#include "trainer/images/colours.hpp"

#include "trainer/images/resample.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace onebatch {
namespace {

std::uint8_t clipped(double value) {
  return static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
}

// PIL's blend: a float's arithmetic, cut off and not rounded.
std::uint8_t blended(int from, int to, float factor) {
  const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
  return static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

// `dull(i)` is what there is at a factor of 0, of number i.
template <typename Dull>
void blend(Image& image, double factor, const Dull& dull) {
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = blended(dull(i), image.pixels[i], static_cast<float>(factor));
}

using Table = std::array<std::uint8_t, 256>;

template <typename Make>
void look_up(Image& image, const Make& table_of_channel) {
  for (std::int64_t c = 0; c < image.channels; ++c) {
    const Table table = table_of_channel(c);
    for (std::size_t i = static_cast<std::size_t>(c); i < image.pixels.size();
         i += static_cast<std::size_t>(image.channels))
      image.pixels[i] = table[image.pixels[i]];
  }
}

std::array<std::int64_t, 256> histogram(const Image& image, std::int64_t channel) {
  std::array<std::int64_t, 256> counts = {};
  for (std::size_t i = static_cast<std::size_t>(channel); i < image.pixels.size();
       i += static_cast<std::size_t>(image.channels))
    ++counts[image.pixels[i]];
  return counts;
}

Table unchanged() {
  Table table;
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::uint8_t>(i);
  return table;
}

// ImageFilter.SMOOTH: [1 1 1; 1 5 1; 1 1 1] / 13; the border stays.
Image smooth(const Image& image) {
  Image made = image;
  const std::int64_t step = image.channels;
  for (std::int64_t y = 1; y + 1 < image.height; ++y) {
    for (std::int64_t i = step; i < (image.width - 1) * step; ++i) {
      float sum = 0.5F;
      for (const std::int64_t row : {y + 1, y, y - 1}) {
        const std::uint8_t* at = image.row(row) + i;
        sum += static_cast<float>(at[-step]) * (1.0F / 13.0F) +
               static_cast<float>(at[0]) * ((row == y ? 5.0F : 1.0F) / 13.0F) +
               static_cast<float>(at[step]) * (1.0F / 13.0F);
      }
      made.row(y)[i] = static_cast<std::uint8_t>(sum);
    }
  }
  return made;
}

// PIL's, of 8 bits each; after Python's colorsys.
struct Hsv {
  std::uint8_t hue = 0;
  std::uint8_t saturation = 0;
  std::uint8_t value = 0;
};

Hsv to_hsv(const std::uint8_t* rgb) {
  const std::uint8_t most = std::max({rgb[0], rgb[1], rgb[2]});
  const std::uint8_t least = std::min({rgb[0], rgb[1], rgb[2]});
  if (most == least) return {0, 0, most};
  const auto range = static_cast<float>(most - least);
  const float s = range / static_cast<float>(most);
  const auto from_top = [&](int c) { return static_cast<float>(most - rgb[c]) / range; };
  float h = 0.0F;
  if (rgb[0] == most)
    h = from_top(2) - from_top(1);
  else if (rgb[1] == most)
    h = static_cast<float>(2.0 + from_top(0) - from_top(2));
  else
    h = static_cast<float>(4.0 + from_top(1) - from_top(0));
  h = static_cast<float>(std::fmod(h / 6.0 + 1.0, 1.0));
  return {clipped(h * 255.0), clipped(s * 255.0), most};
}

void to_rgb(const Hsv& hsv, std::uint8_t* rgb) {
  if (hsv.saturation == 0) {
    std::fill_n(rgb, 3, hsv.value);
    return;
  }
  const auto s = static_cast<float>(hsv.saturation / 255.0);
  const double place = hsv.hue * 6.0 / 255.0;
  const double sector = std::floor(place);
  const auto f = static_cast<float>(place - static_cast<float>(sector));
  const auto v = static_cast<float>(hsv.value);
  const std::uint8_t p = clipped(std::round(v * (1.0 - s)));
  const std::uint8_t q = clipped(std::round(v * (1.0 - s * f)));
  const std::uint8_t t = clipped(std::round(v * (1.0 - s * (1.0 - f))));
  const std::uint8_t choices[6][3] = {{hsv.value, t, p}, {q, hsv.value, p}, {p, hsv.value, t},
                                      {p, q, hsv.value}, {t, p, hsv.value}, {hsv.value, p, q}};
  std::copy_n(choices[static_cast<int>(sector) % 6], 3, rgb);
}

}  // namespace

void adjust_brightness(Image& image, double factor) {
  blend(image, factor, [](std::size_t) { return 0; });
}

void adjust_contrast(Image& image, double factor) {
  const Image grey = with_channels(image, 1);
  double sum = 0.0;
  for (const std::uint8_t value : grey.pixels) sum += value;
  const auto mean = static_cast<int>(sum / static_cast<double>(grey.pixels.size()) + 0.5);
  blend(image, factor, [&](std::size_t) { return mean; });
}

void adjust_saturation(Image& image, double factor) {
  const Image grey = with_channels(image, 1);
  blend(image, factor, [&](std::size_t i) { return static_cast<int>(grey.pixels[i / 3]); });
}

void adjust_sharpness(Image& image, double factor) {
  const Image soft = smooth(image);
  blend(image, factor, [&](std::size_t i) { return static_cast<int>(soft.pixels[i]); });
}

void adjust_hue(Image& image, double turn) {
  const auto by = static_cast<std::uint8_t>(static_cast<int>(turn * 255.0));
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    Hsv hsv = to_hsv(image.pixels.data() + i);
    hsv.hue = static_cast<std::uint8_t>(hsv.hue + by);
    to_rgb(hsv, image.pixels.data() + i);
  }
}

void posterize(Image& image, int bits) {
  const auto mask = static_cast<std::uint8_t>(~((1 << (8 - bits)) - 1));
  for (std::uint8_t& value : image.pixels) value &= mask;
}

void solarize(Image& image, double threshold) {
  for (std::uint8_t& value : image.pixels) {
    if (value >= threshold) value = static_cast<std::uint8_t>(255 - value);
  }
}

void autocontrast(Image& image) {
  look_up(image, [&](std::int64_t c) {
    const auto counts = histogram(image, c);
    const auto is_there = [](std::int64_t count) { return count > 0; };
    const auto low = std::ranges::find_if(counts, is_there) - counts.begin();
    const auto high = counts.rend() - std::find_if(counts.rbegin(), counts.rend(), is_there) - 1;
    Table table = unchanged();
    if (high <= low) return table;
    const double scale = 255.0 / static_cast<double>(high - low);
    const double offset = -static_cast<double>(low) * scale;
    for (std::size_t i = 0; i < table.size(); ++i)
      table[i] = clipped(std::trunc(static_cast<double>(i) * scale + offset));
    return table;
  });
}

void equalize(Image& image) {
  look_up(image, [&](std::int64_t c) {
    const auto counts = histogram(image, c);
    Table table = unchanged();
    std::int64_t last = 0;
    for (const std::int64_t count : counts) last = count > 0 ? count : last;
    const std::int64_t step = (image.height * image.width - last) / 255;
    const auto kinds = std::ranges::count_if(counts, [](std::int64_t count) { return count > 0; });
    if (kinds <= 1 || step == 0) return table;
    std::int64_t n = step / 2;
    for (std::size_t i = 0; i < table.size(); ++i) {
      table[i] = static_cast<std::uint8_t>(std::min<std::int64_t>(255, n / step));
      n += counts[i];
    }
    return table;
  });
}

void transform(Image& image, const AffineMap& map) {
  // PIL's 16 bits of fraction.
  const auto fixed = [](double value) { return static_cast<std::int64_t>(std::floor(value * 65536.0 + 0.5)); };
  const Image from = image;
  std::int64_t row_x = fixed(map[2] + map[0] * 0.5 + map[1] * 0.5);
  std::int64_t row_y = fixed(map[5] + map[3] * 0.5 + map[4] * 0.5);
  for (std::int64_t y = 0; y < image.height; ++y, row_x += fixed(map[1]), row_y += fixed(map[4])) {
    std::uint8_t* to = image.row(y);
    for (std::int64_t x = 0; x < image.width; ++x, to += 3) {
      const std::int64_t from_x = (row_x + x * fixed(map[0])) >> 16;
      const std::int64_t from_y = (row_y + x * fixed(map[3])) >> 16;
      const bool inside = from_x >= 0 && from_x < image.width && from_y >= 0 && from_y < image.height;
      if (inside)
        std::copy_n(from.row(from_y) + from_x * 3, 3, to);
      else
        std::fill_n(to, 3, std::uint8_t{0});
    }
  }
}

AffineMap shear_map(double x, double y) {
  // torchvision's of a shear about the corner: its inverse.
  return {1.0, x, 0.0, y, 1.0, 0.0};
}

AffineMap translation_map(double x, double y) {
  return {1.0, 0.0, -x, 0.0, 1.0, -y};
}

AffineMap rotation_map(double degrees, const ImageSize& size) {
  const double angle = -degrees * 3.14159265358979323846 / 180.0;
  const auto rounded = [](double value) { return std::round(value * 1e15) / 1e15; };
  const double cosine = rounded(std::cos(angle));
  const double sine = rounded(std::sin(angle));
  const double x = static_cast<double>(size.width) / 2.0;
  const double y = static_cast<double>(size.height) / 2.0;
  return {cosine, sine, cosine * -x + sine * -y + x, rounded(-std::sin(angle)), cosine, -sine * -x + cosine * -y + y};
}

}  // namespace onebatch
