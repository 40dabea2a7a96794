// Whether a model that was taken apart still is that model.
#pragma once

#include "trainer/replica.hpp"

namespace onebatch {

/// Computes the gradient of a few samples in one micro-batch by the model's graph and by its ordinary backward, in float64 on the host,
/// from the configuration's initial weights. Throws CannotCapture where they differ, or where the model cannot be taken apart. Not
/// collective.
void check_capture(const Configuration& configuration, const Dataset& data);

}  // namespace onebatch
