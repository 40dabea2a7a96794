// The plan's gradient against one single large batch, on the user's own model and data.
#pragma once

#include "trainer/planning.hpp"
#include "trainer/session.hpp"

namespace onebatch {

struct VerifyParts {
  const Configuration& configuration;
  Replica& replica;
  const Dataset& data;
  GradientReducer& reducer;
  comm::Communicator& control;
  RunPlans& plans;
};

/// The accumulated, all-reduced gradient of the first global batch, against all its samples at once on the CPU in fp64 (where host memory
/// is predicted to hold that, else of the largest batch that does, split in the plan's pattern). Passes where our error is at most twice
/// the single large batch's own in the run's precision, or within the tolerance. Collective; the report is rank 0's.
VerifyReport verify_gradient(const VerifyParts& parts, const VerifyOptions& options);

}  // namespace onebatch
