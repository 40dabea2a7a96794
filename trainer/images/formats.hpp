// What each format's reader gives to decode.cpp.
#pragma once

#include "trainer/images/decode.hpp"

namespace onebatch {

/// The orientation that an EXIF block tells (TIFF 6.0, tag 0x0112); 1 where it tells none.
int exif_orientation(ImageBytes tiff);

ImageHeader read_jpeg_header(ImageBytes bytes);
ImageHeader read_png_header(ImageBytes bytes);
ImageHeader read_webp_header(ImageBytes bytes);

/// The rows of `box` (and some around them, or all) at 1 / `denominator` of the stored size; `box` in stored pixels.
DecodedPart decode_jpeg(ImageBytes bytes, const ImageBox& box, int denominator);
Image decode_png(ImageBytes bytes, const ImageSize& size);
Image decode_webp(ImageBytes bytes, const ImageSize& size);

}  // namespace onebatch
