// The built-in ResNets as modules.
#pragma once

#include "trainer/models/trainable_module.hpp"

namespace onebatch {

/// Throws UserError where the configuration's depth is none of its stem.
std::shared_ptr<TrainableModule> make_resnet(const ModelConfiguration& configuration, std::int64_t num_channels,
                                             std::int64_t num_classes);

}  // namespace onebatch
