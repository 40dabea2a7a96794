// JPEG, PNG and WebP, told apart by what they hold, by libjpeg-turbo, libpng and libwebp. What comes out is what PIL's
// convert("RGB") gives of the same bytes: palettes are resolved, of 16 bits the upper 8 are taken, CMYK becomes RGB,
// and an alpha channel is dropped; but an image is turned as its EXIF orientation says.
#pragma once

#include "trainer/images/image.hpp"

#include <span>

namespace onebatch {

using ImageBytes = std::span<const std::uint8_t>;

/// An image of more pixels is refused before anything is allocated for it.
constexpr std::int64_t k_most_pixels = std::int64_t{1} << 27;

enum class ImageFormat { jpeg, png, webp };

struct ImageHeader {
  ImageFormat format = ImageFormat::jpeg;
  ImageSize stored;
  int orientation = 1;  // EXIF's, 1 to 8

  /// As the image is to be looked at.
  [[nodiscard]] ImageSize size() const;
};

/// Throws ImageError: no image, cut off, empty, more than `most_pixels`, or more than the file's bytes can stand for.
ImageHeader read_image_header(ImageBytes bytes, std::int64_t most_pixels = k_most_pixels);

/// Pixels, and where in them the box lies that was asked for.
struct DecodedPart {
  Image image;
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
};

/// Three channels. `box` is a part of header.size(), and the only one that is sure to be there. A JPEG is decoded at
/// 1/2, 1/4 or 1/8 of its size where the box has no fewer rows and columns than `wanted` then; others as they are.
/// Throws ImageError.
DecodedPart decode_part(ImageBytes bytes, const ImageHeader& header, const ImageBox& box, const ImageSize& wanted);

/// All of it, at its own size.
Image decode_image(ImageBytes bytes, std::int64_t most_pixels = k_most_pixels);

}  // namespace onebatch
