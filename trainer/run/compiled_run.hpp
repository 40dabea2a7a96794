// A run whose gradients come of native code: where that can be, and whether they are the program's.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/events/event_stream.hpp"
#include "trainer/replica/replica.hpp"
#include "trainer/step/step_runner.hpp"

namespace onebatch {

/// Where model.compiled names a package, the replica trains by it from now on. It is compared before with the program
/// as it is, on a micro-batch of the run's data in its precision. Throws AgreedError where the run needs what a
/// compiled program cannot do yet, where the package does not fit, or where its gradient is further off than twice the
/// program's own rounding. Collective.
void use_compiled(const Configuration& configuration, const Dataset& data, const MicroBatchRunner& runner,
                  comm::Communicator& control, EventStream& events);

}  // namespace onebatch
