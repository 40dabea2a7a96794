// Mixup (Zhang et al., 2018) and CutMix (Yun et al., 2019), as torchvision's; but each sample draws its own share and a
// partner of the whole data set, so that they do not depend on which samples come together.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/images/image.hpp"

namespace onebatch {

inline bool is_mixing(const AugmentConfiguration& augment) {
  return augment.mixup_alpha > 0.0 || augment.cutmix_alpha > 0.0;
}

struct Mix {
  std::int64_t partner = 0;
  double share = 1.0;  // of the sample itself
  bool cut = false;    // CutMix
  ImageBox box;        // CutMix: what is the partner's
};

/// Whose mix it is.
struct MixKey {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t sample = 0;
};

/// Where both are asked for each has half of the samples.
Mix draw_mix(const AugmentConfiguration& augment, const MixKey& key, std::int64_t samples, const ImageSize& size);

/// The partner's part goes into `image`. Mixed pixels are rounded to 8 bits.
void apply(const Mix& mix, const Image& partner, Image& image);

}  // namespace onebatch
