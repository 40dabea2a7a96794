// A run whose gradients come of native code: where that can be, and whether they are the program's.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/base/session_options.hpp"
#include "trainer/events/event_stream.hpp"
#include "trainer/models/compiled_package.hpp"
#include "trainer/replica/replica.hpp"
#include "trainer/step/step_runner.hpp"

#include <string>

namespace onebatch {

/// Of a run before its first step.
struct RunToCompile {
  Configuration& configuration;  // in the place of model.compiled = "auto" it says what has become of it
  const Dataset& data;
  const MicroBatchRunner& runner;
  comm::Communicator& control;
  EventStream& events;
  const SessionOptions& options;
};

/// Why no native code goes with the run on this rank, after the key's name: empty where it does.
std::string why_not_here(const Configuration& configuration, const MicroBatchRunner& runner);

/// What native code for the run has to fit, with what the loss has settled by itself.
Configuration as_compiled(const RunToCompile& run);

/// The device that the run's native code is for on this rank.
CompiledFor compiled_for(const ComputeDevice& device);

/// The replica trains by the package from now on, whose code that trains is compared before with the program as it is.
/// Throws UserError, which begins with `called`, where a gradient is further off than twice the program's own rounding.
/// Not collective.
void train_by(const CompiledPackage& package, const RunToCompile& run, const std::string& called);

struct Evaluating {
  bool natively = false;
  std::string said = {};  // of it, "; ...", or nothing
};

/// Whether the replica, which trains by native code, also validates by it: where all ranks can and, with a size of a
/// micro-batch to time, all together are no slower by it. Collective.
Evaluating settle_evaluation(const RunToCompile& run, std::int64_t trial_size);

/// Where model.compiled names a package, the replica trains by it from now on. It is compared before with the program
/// as it is, on a micro-batch of the run's data in its precision. Throws AgreedError where the run needs what a
/// compiled program cannot do yet, where the package does not fit, or where its gradient is further off than twice the
/// program's own rounding. Collective.
///
/// "auto": a package is taken from the cache, or made. In all these cases, and where it is no faster, a line says so
/// and the run goes on uncompiled, on all ranks alike. Throws AgreedError where others may write to the cache.
void use_compiled(const RunToCompile& run);

}  // namespace onebatch
