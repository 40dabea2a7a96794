// An image in memory, and what is said of a file that holds none.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace onebatch {

/// 8 bits a channel; channels lie beside each other, rows below each other.
struct Image {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 3;  // red, green, blue; or 1, grey
  std::vector<std::uint8_t> pixels;

  Image() = default;
  Image(std::int64_t rows, std::int64_t columns, std::int64_t of_pixel, std::uint8_t value = 0)
      : height(rows),
        width(columns),
        channels(of_pixel),
        pixels(static_cast<std::size_t>(rows * columns * of_pixel), value) {}

  [[nodiscard]] std::uint8_t* row(std::int64_t y) { return pixels.data() + y * width * channels; }
  [[nodiscard]] const std::uint8_t* row(std::int64_t y) const { return pixels.data() + y * width * channels; }
  bool operator==(const Image&) const = default;
};

struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool operator==(const ImageSize&) const = default;
};

/// A part of an image, in its pixels.
struct ImageBox {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool operator==(const ImageBox&) const = default;
};

/// Bytes are no image that can be read; the words follow a file's name: "is cut off".
class ImageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace onebatch
