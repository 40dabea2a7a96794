// Changes of an image's colours and shape, each what torchvision's functional of the same name makes of a PIL image, to
// the last bit. Images have three channels.
#pragma once

#include "trainer/images/image.hpp"

#include <array>

namespace onebatch {

/// Factors from 0; 1 changes nothing.
void adjust_brightness(Image& image, double factor);
void adjust_contrast(Image& image, double factor);
void adjust_saturation(Image& image, double factor);
void adjust_sharpness(Image& image, double factor);
/// A part of the circle, -0.5 to 0.5.
void adjust_hue(Image& image, double turn);
/// Keeps so many upper bits of each number.
void posterize(Image& image, int bits);
/// Numbers from `threshold` on become their complements.
void solarize(Image& image, double threshold);
void autocontrast(Image& image);
void equalize(Image& image);

/// Where row y and column x come from: column m[0] x + m[1] y + m[2], row m[3] x + m[4] y + m[5], of pixels' middles;
/// the nearest pixel, black from outside.
using AffineMap = std::array<double, 6>;
void transform(Image& image, const AffineMap& map);
/// The maps of shear_x, shear_y by a tangent, of translations in pixels, and of a turn about the middle, in degrees.
AffineMap shear_map(double x, double y);
AffineMap translation_map(double x, double y);
AffineMap rotation_map(double degrees, const ImageSize& size);

}  // namespace onebatch
