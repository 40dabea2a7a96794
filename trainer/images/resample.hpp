// Resizing as PIL does: bilinear, and where it becomes smaller each pixel is the mean of all that it covers, weighted
// by a triangle ("antialias"), in 22-bit fixed point; first across, then down, as Pillow up to 12 always does.
#pragma once

#include "trainer/images/decode.hpp"

namespace onebatch {

/// The box of `part` in `size`: what lies outside of the box, rounded outwards to whole pixels, plays no part.
Image resized(const DecodedPart& part, const ImageSize& size);
Image resized(const Image& image, const ImageSize& size);

/// torchvision's Resize: the shorter side becomes `shorter`, the other keeps the shape.
ImageSize size_with_shorter_side(const ImageSize& size, std::int64_t shorter);
/// torchvision's CenterCrop. The image is no smaller.
Image centre_crop(const Image& image, const ImageSize& size);

/// 3 channels or 1: PIL's convert("L").
Image with_channels(Image image, std::int64_t channels);

}  // namespace onebatch
