// Which depths of a ResNet are built in: a number alone does not tell an ImageNet ResNet from a CIFAR one (50 is 6n + 2 as well).
#pragma once

#include "trainer/base/configuration.hpp"

namespace onebatch {

/// What is wrong with the depth for the stem, in words that say what to write instead; empty: nothing. Depth 18 is He et al.'s of four
/// stages with either stem, 6n + 2 are the CIFAR ones of three stages, which begin with the cifar stem.
inline std::string wrong_resnet_depth(const ModelConfiguration& model) {
  if (model.depth == 18) return {};
  const bool cifar_depth = model.depth >= 8 && (model.depth - 2) % 6 == 0;
  if (model.stem == ResNetStem::cifar) return cifar_depth ? "" : "write 18, or 8, 14, 20, … (6n + 2) for the CIFAR ResNets";
  const std::string imagenet =
      "with model.stem = \"imagenet\" write 18; others, as 34 and 50, come from Python as model.kind = \"torchscript\"";
  return imagenet + (cifar_depth ? "; the CIFAR ResNet of " + std::to_string(model.depth) + " layers needs model.stem = \"cifar\"" : "");
}

}  // namespace onebatch
