// Whether a model that was taken apart still is that model.
#pragma once

#include "trainer/replica/replica.hpp"

namespace onebatch {

/// Captures micro-batches of two sizes, changes the parameters, and plays each tape on other samples: loss, weight,
/// gradient and buffers must be those of the model's ordinary forward and backward, in float64 on the host, or in
/// float32 where the model does not run in it, from the configuration's initial weights. Throws CannotCapture where
/// they differ or are not finite, or where the model cannot be taken apart. Not collective.
void check_capture(const Configuration& configuration, const Dataset& data, const Examination& examination);

}  // namespace onebatch
