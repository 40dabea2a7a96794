// Whether how far a sequence is padded changes what a model makes of it.
#pragma once

#include "trainer/replica/replica.hpp"

namespace onebatch {

/// To the longest of a micro-batch only where loss, weight and gradient of a few short samples are seen to stay as they
/// are when they are padded further, in float64 on the host. Statistics, means or convolutions over padded positions,
/// and mean squared errors that count them, are those of one batch where all are padded to its longest. So is whatever
/// cannot be tried.
Padding padding_needed(const Configuration& configuration, const Dataset& data);

}  // namespace onebatch
