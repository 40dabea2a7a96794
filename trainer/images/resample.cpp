#include "trainer/images/resample.hpp"

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr int k_precision_bits = 32 - 8 - 2;

// Which pixels a pixel is made of, and how much of each.
struct Taps {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights;
};

std::vector<double> triangle(double centre, std::int64_t first, std::int64_t last, double scale) {
  std::vector<double> weights;
  double sum = 0.0;
  for (std::int64_t x = first; x < last; ++x) {
    weights.push_back(std::max(0.0, 1.0 - std::fabs((static_cast<double>(x) - centre + 0.5) * (1.0 / scale))));
    sum += weights.back();
  }
  for (double& weight : weights) weight = sum != 0.0 ? weight / sum : weight;
  return weights;
}

// Of a line from `begin` that is `length` long, in pixels from `least` to `most`.
std::vector<Taps> taps_of(double begin, double length, std::int64_t least, std::int64_t most, std::int64_t made) {
  const double step = length / static_cast<double>(made);
  const double scale = std::max(1.0, step);
  std::vector<Taps> taps(static_cast<std::size_t>(made));
  for (std::size_t i = 0; i < taps.size(); ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * step;
    const auto first = std::max(least, static_cast<std::int64_t>(centre - scale + 0.5));
    const auto last = std::max(first + 1, std::min(most, static_cast<std::int64_t>(centre + scale + 0.5)));
    taps[i].first = first;
    for (const double weight : triangle(centre, first, last, scale))
      taps[i].weights.push_back(static_cast<std::int32_t>(weight * (1 << k_precision_bits) + 0.5));
  }
  return taps;
}

std::uint8_t clipped(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> k_precision_bits, 0, 255));
}

constexpr std::int32_t k_half = 1 << (k_precision_bits - 1);

void across(const std::uint8_t* from, const std::vector<Taps>& taps, std::uint8_t* to) {
  for (const Taps& of : taps) {
    std::int32_t red = k_half;
    std::int32_t green = k_half;
    std::int32_t blue = k_half;
    const std::uint8_t* pixel = from + 3 * of.first;
    for (const std::int32_t weight : of.weights) {
      red += pixel[0] * weight;
      green += pixel[1] * weight;
      blue += pixel[2] * weight;
      pixel += 3;
    }
    to[0] = clipped(red);
    to[1] = clipped(green);
    to[2] = clipped(blue);
    to += 3;
  }
}

void down(const Image& from, std::int64_t first_row, const Taps& of, std::vector<std::int32_t>& sums,
          std::uint8_t* to) {
  std::fill(sums.begin(), sums.end(), k_half);
  for (std::size_t i = 0; i < of.weights.size(); ++i) {
    const std::uint8_t* row = from.row(of.first - first_row + static_cast<std::int64_t>(i));
    const std::int32_t weight = of.weights[i];
    for (std::size_t x = 0; x < sums.size(); ++x) sums[x] += row[x] * weight;
  }
  for (std::size_t x = 0; x < sums.size(); ++x) to[x] = clipped(sums[x]);
}

// PIL leaves out what changes nothing, and so does the arithmetic: a tap of 1.
bool is_all(double begin, double length, std::int64_t of, std::int64_t made) {
  return begin == 0.0 && length == static_cast<double>(of) && of == made;
}

// From which pixel to which a box goes that is rounded outwards.
struct Ends {
  std::int64_t first;
  std::int64_t last;
};
Ends ends_of(double begin, double length, std::int64_t all) {
  return {std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(begin))),
          std::min(all, static_cast<std::int64_t>(std::ceil(begin + length)))};
}

}  // namespace

Image resized(const DecodedPart& part, const ImageSize& size) {
  const Image& image = part.image;
  if (is_all(part.top, part.height, image.height, size.height) &&
      is_all(part.left, part.width, image.width, size.width))
    return image;
  const Ends rows = ends_of(part.top, part.height, image.height);
  const Ends columns = ends_of(part.left, part.width, image.width);
  const auto vertical = taps_of(part.top, part.height, rows.first, rows.last, size.height);
  const auto horizontal = taps_of(part.left, part.width, columns.first, columns.last, size.width);
  const Taps& bottom = vertical.back();
  const std::int64_t first_row = vertical.front().first;
  const std::int64_t last_row = bottom.first + static_cast<std::int64_t>(bottom.weights.size());
  Image narrow(last_row - first_row, size.width, 3);
  for (std::int64_t y = 0; y < narrow.height; ++y) across(image.row(first_row + y), horizontal, narrow.row(y));
  Image made(size.height, size.width, 3);
  std::vector<std::int32_t> sums(static_cast<std::size_t>(size.width * 3));
  for (std::int64_t y = 0; y < size.height; ++y)
    down(narrow, first_row, vertical[static_cast<std::size_t>(y)], sums, made.row(y));
  return made;
}

Image resized(const Image& image, const ImageSize& size) {
  return resized({image, 0, 0, static_cast<double>(image.height), static_cast<double>(image.width)}, size);
}

ImageSize size_with_shorter_side(const ImageSize& size, std::int64_t shorter) {
  if (size.width <= size.height) return {shorter * size.height / size.width, shorter};
  return {shorter, shorter * size.width / size.height};
}

Image centre_crop(const Image& image, const ImageSize& size) {
  if (image.height == size.height && image.width == size.width) return image;
  const auto begin = [](std::int64_t all, std::int64_t part) {
    return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(all - part) / 2.0));
  };
  const std::int64_t top = begin(image.height, size.height);
  const std::int64_t left = begin(image.width, size.width);
  Image made(size.height, size.width, image.channels);
  for (std::int64_t y = 0; y < size.height; ++y) {
    const std::uint8_t* from = image.row(top + y) + left * image.channels;
    std::copy(from, from + size.width * image.channels, made.row(y));
  }
  return made;
}

Image with_channels(Image image, std::int64_t channels) {
  if (channels == image.channels) return image;
  Image grey(image.height, image.width, 1);
  const std::uint8_t* from = image.pixels.data();
  // ITU-R 601-2 in 16-bit fixed point.
  for (std::uint8_t& value : grey.pixels) {
    value = static_cast<std::uint8_t>((from[0] * 19595 + from[1] * 38470 + from[2] * 7471 + 0x8000) >> 16);
    from += 3;
  }
  return grey;
}

}  // namespace onebatch
