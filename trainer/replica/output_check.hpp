// Whether model, loss and data fit together, found before anything is trained.
#pragma once

#include "trainer/replica/replica.hpp"

namespace onebatch {

/// Throws UserError where the loss cannot take the targets: none, of another kind, or labels that are no classes of
/// `num_classes`; it names the tensor, the sample and the label. `key`: "data" or "data.validation".
void check_targets(const LossConfiguration& loss, const Dataset& data, std::int64_t num_classes,
                   const std::string& key);

/// Whether classes have targets [samples, ...]: then where outputs have them has to be found out before the loss can
/// read any.
bool has_to_settle(const Loss& loss, const Dataset& data);

/// Runs the model on the longest samples, and on the shortest where their shapes leave a doubt, and settles how the
/// loss reads its outputs. Throws UserError, with the shapes, where it cannot, and, with the files too, where the model
/// does not take the samples. Leaves buffers as they were. Where that runs out of memory nothing is found: the probe
/// will say it.
void check_outputs(Replica& replica, const Dataset& data, const Configuration& configuration);

}  // namespace onebatch
