// Validation as one writes it by hand, in other sizes than the program's.
#pragma once

#include "trainer/base/results.hpp"
#include "trainer/verify/reference.hpp"

namespace onebatch {

/// What the program's evaluation came to.
struct TrainedValidation {
  const Dataset& data;
  std::int64_t samples = 0;  // the first so many
  std::int64_t step = 0;
  Weights weights;
  EvaluationResult result;
  bool model_changed = false;
};

struct ReferenceValidation {
  EvaluationResult result;
  double weight = 0.0;  // of all samples; 0: none counts, and there is no loss
};

/// The same samples in a few parts, and as of another step: neither is to change anything.
ReferenceValidation reference_validation(const ReferenceParts& parts, const Arithmetic& in,
                                         const TrainedValidation& found);

}  // namespace onebatch
