// Micro-batches of native code beside those of the program that it was made of: are they the same, are they faster.
#pragma once

#include "trainer/replica/replica.hpp"
#include "trainer/step/step_runner.hpp"

#include <cstdint>
#include <string>

namespace onebatch {

/// Compares what the replica's native code makes of two micro-batches of the run's data with the program as it is.
/// Throws UserError, which begins with `called`, where its gradient or a buffer is further off than twice the program's
/// own rounding. A variant that the device has no memory for never runs from here on; where that is all of them:
/// DoesNotFitError. Leaves the replica as it was. Not collective.
void check_truth(const std::string& called, const Configuration& configuration, const Dataset& data, Replica& replica);

/// Why its native code is not to evaluate, empty where it does as the program: what it makes of a micro-batch in
/// evaluation is further off than twice the program's own rounding, or there is no memory for it. Leaves the replica as
/// it was. Not collective.
std::string why_not_evaluate(const Configuration& configuration, const Dataset& data, Replica& replica);

struct CompiledTimes {
  double samples_per_second = 0.0;  // uncompiled; 0: it does not fit
  double ratio = 1.0;               // of a micro-batch's time compiled to uncompiled: the median of pairs
};

/// Micro-batches of so many samples (fewer where memory is short), compiled and uncompiled in turn; two that share
/// BatchNorm's statistics where the run's do. Leaves the replica as it was. Not collective.
CompiledTimes time_compiled(const MicroBatchRunner& runner, const Dataset& data, std::int64_t micro_batch_size);

/// Likewise of one in evaluation, of at least three samples, as validation's are.
CompiledTimes time_evaluation(Replica& replica, const Dataset& data, std::int64_t micro_batch_size);

}  // namespace onebatch
