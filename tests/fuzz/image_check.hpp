// What the targets of image formats share.
#pragma once

#include "trainer/images/resample.hpp"

#include "tests/fuzz/fuzz_target.hpp"

namespace onebatch::fuzz {

/// Small, so that what libFuzzer makes up is quickly read.
constexpr std::int64_t k_fuzzed_pixels = std::int64_t{1} << 18;

/// Bytes are refused in words, or are an image of the size that they say, all of it and any part.
inline void check_image(std::string_view input) {
  const ImageBytes bytes(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  const auto header = unless_refused<ImageError>([&] { return read_image_header(bytes, k_fuzzed_pixels); });
  const auto image = unless_refused<ImageError>([&] { return decode_image(bytes, k_fuzzed_pixels); });
  check(header.has_value() || !image.has_value(), "what has no header has no pixels");
  if (!image) return;
  const ImageSize size = header->size();
  check(image->height == size.height && image->width == size.width && image->channels == 3,
        "it is as large as it says");
  const ImageBox box{size.height / 3, size.width / 3, (size.height + 2) / 3, (size.width + 2) / 3};
  const auto part = unless_refused<ImageError>([&] {
    return resized(decode_part(bytes, *header, box, {5, 3}), {5, 3});
  });
  check(!part || (part->height == 5 && part->width == 3), "a part is as large as was asked for");
}

}  // namespace onebatch::fuzz
