// The forward that gradients are made from: by native code, where the model has some.
#pragma once

#include "trainer/replica/replica.hpp"

namespace onebatch {

/// As Replica::forward(), of which the outputs may be undefined: a compiled program returns loss and weight alone.
Replica::Forward training_forward(Replica& replica, const Batch& batch, const ForwardContext& context);

}  // namespace onebatch
