// How well a batch's gradient is defined: what another order of its samples, or a rounding of the weights, does to it.
#pragma once

#include "trainer/verify/reference.hpp"

namespace onebatch {

/// How far the same samples in other orders (last to first, from the middle on) are from `exact`: the larger.
double apart_by_order(ReferenceModel& model, const Group& samples, std::int64_t step, const Gradient& exact);

/// Some draws' largest relative L2 distance from `exact`, the float64 gradient of `samples` at once, when every weight
/// moves by up to two roundings `u`, at random. Ends early at a draw that is `enough` off. Of a smooth model it is a
/// few `u`; where a ReLU's input, or the distance of two maxima, is within rounding of zero, one of its samples takes
/// the other branch in some draws, and the gradient jumps. See Note [A kink within rounding]. `weights`: the model's,
/// which it has afterwards.
double apart_by_rounded_weights(ReferenceModel& model, const Weights& weights, const Group& samples, std::int64_t step,
                                const Gradient& exact, double u, double enough);

}  // namespace onebatch
