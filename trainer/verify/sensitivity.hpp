// How well a batch's gradient is defined: what another order of its samples, or a rounding of the weights, does to it.
#pragma once

#include "trainer/verify/reference.hpp"

#include <optional>

namespace onebatch {

/// How far the same samples in other orders (last to first, from the middle on) are from `exact`: the larger.
double apart_by_order(ReferenceModel& model, const Group& samples, std::int64_t step, const Gradient& exact);

struct NeighbourRequest {
  const Weights& weights;  // the model's, which it has afterwards
  const Group& samples;
  std::int64_t step;
  double u;     // the unit roundoff that `ours` was computed in
  double near;  // relative L2 that is no difference
};

struct Neighbour {
  double jump;   // relative L2 from the exact gradient to this one
  double apart;  // from ours to this one
};

/// A gradient in float64 of the same samples at once that is ours, for weights that are up to 16 roundings off: then
/// `exact` and ours are two sides of a kink. None of some draws: it is none. See Note [A kink within rounding].
std::optional<Neighbour> neighbour_with(const NeighbourRequest& request, ReferenceModel& model, const Gradient& ours,
                                        const Gradient& exact);

}  // namespace onebatch
