// Which operator of a model's forward makes a sample's numbers depend on the others, and in how short a type a model
// computes inside.
#pragma once

#include "trainer/verify/reference.hpp"

namespace onebatch {

/// The first call of the forward whose result for the first sample is another when the others are there ("aten::mean,
/// after fc1"); empty where there is none. `samples`: two or more.
std::string first_mixing_operator(ReferenceModel& model, const Group& samples, std::int64_t step);

/// The first call of the forward that draws from the host's generator; empty where none does.
std::string first_drawing_operator(ReferenceModel& model, const Group& samples, std::int64_t step);

/// The floating-point type with the fewest digits among the results of the forward's calls.
at::ScalarType shortest_type(ReferenceModel& model, const Group& samples, std::int64_t step);

/// The unit roundoff of what rounds in the model's forward where float64 is asked for: at most float32's.
double roundoff_inside(const ReferenceParts& parts, const Weights& weights);

}  // namespace onebatch
