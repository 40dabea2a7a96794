// Random changes of training images, each torchvision's of the same name: what is drawn comes from Draws alone.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/images/draws.hpp"
#include "trainer/images/image.hpp"

namespace onebatch {

/// RandomResizedCrop.get_params: ten tries, then the largest centred part whose shape is allowed.
ImageBox draw_crop(const ImageSize& size, const AugmentConfiguration& augment, Draws& draws);

/// RandomCrop of the image with so many black pixels around it, to its own size.
void draw_shift(Image& image, std::int64_t most, Draws& draws);

void mirror(Image& image);

}  // namespace onebatch
