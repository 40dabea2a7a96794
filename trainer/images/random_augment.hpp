// RandAugment (Cubuk et al., 2020) and ColorJitter, with torchvision's operations, ranges and order.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/images/draws.hpp"
#include "trainer/images/image.hpp"

#include <string>
#include <vector>

namespace onebatch {

/// "Identity", "ShearX", …
const std::vector<std::string>& rand_augment_operations();
enum class Sign { positive, negative };
/// One of them, with torchvision's magnitude for a bin of 31, and of this sign where it has one.
void apply_operation(Image& image, const std::string& name, std::int64_t bin, Sign sign);

/// RandAugment, then ColorJitter, as far as they are asked for.
void change_colours(Image& image, const AugmentConfiguration& augment, Draws& draws);

}  // namespace onebatch
