// Augmentation of training images: what is drawn for a sample depends on seed, step and sample alone, so that any plan
// sees the same images.
#pragma once

#include "trainer/data/dataset.hpp"

namespace onebatch {

/// Throws UserError where the data is no images.
void check_augmentation(const AugmentConfiguration& configuration, const Dataset& data);

/// Of images [N, C, H, W] on the CPU, of a floating-point type: each shifted by up to `crop_padding` pixels either way,
/// with zeros coming in (torchvision's RandomCrop of the padded image), and mirrored with probability 1/2. `samples`
/// are the rows' indices. Returns the images themselves where nothing is asked for.
at::Tensor augmented(const at::Tensor& images, const AugmentConfiguration& configuration, std::uint64_t seed,
                     std::int64_t step, std::span<const std::int64_t> samples);

}  // namespace onebatch
