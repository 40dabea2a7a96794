// WebP by libwebp, lossy and lossless; of an animation nobody can say which image is meant.
#include "trainer/images/formats.hpp"

#include <webp/decode.h>

#include <cstring>

namespace onebatch {
namespace {

std::size_t little_endian(ImageBytes bytes, std::size_t at) {
  return bytes[at] | std::size_t{bytes[at + 1]} << 8 | std::size_t{bytes[at + 2]} << 16 |
         std::size_t{bytes[at + 3]} << 24;
}

// A RIFF file's chunks: a name, a length, as many bytes and one more where that is odd.
int orientation_of(ImageBytes bytes) {
  constexpr std::size_t k_head = 8;
  for (std::size_t at = 12; at + k_head <= bytes.size();) {
    const std::size_t length = little_endian(bytes, at + 4);
    if (length > bytes.size() - at - k_head) return 1;
    if (std::memcmp(bytes.data() + at, "EXIF", 4) == 0) {
      ImageBytes exif = bytes.subspan(at + k_head, length);
      if (exif.size() > 6 && std::memcmp(exif.data(), "Exif\0", 6) == 0) exif = exif.subspan(6);
      return exif_orientation(exif);
    }
    at += k_head + length + length % 2;
  }
  return 1;
}

[[noreturn]] void fail(VP8StatusCode status) {
  if (status == VP8_STATUS_NOT_ENOUGH_DATA || status == VP8_STATUS_SUSPENDED)
    throw ImageError("is cut off: the WebP has no end");
  if (status == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();
  throw ImageError("is no WebP that can be read");
}

}  // namespace

ImageHeader read_webp_header(ImageBytes bytes) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(bytes.data(), bytes.size(), &features);
  if (status != VP8_STATUS_OK) fail(status);
  if (features.has_animation != 0) throw ImageError("is an animation: write one of its images");
  return {ImageFormat::webp, {features.height, features.width}, orientation_of(bytes)};
}

Image decode_webp(ImageBytes bytes, const ImageSize& size) {
  Image image(size.height, size.width, 3);
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) throw ImageError("needs another version of libwebp");
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = image.pixels.data();
  config.output.u.RGBA.stride = static_cast<int>(size.width * 3);
  config.output.u.RGBA.size = image.pixels.size();
  const VP8StatusCode status = WebPDecode(bytes.data(), bytes.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status != VP8_STATUS_OK) fail(status);
  return image;
}

}  // namespace onebatch
