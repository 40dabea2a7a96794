// model.compiled = "auto": the run makes its native code itself, and takes it where it is true and faster.
#pragma once

#include "trainer/run/compiled_run.hpp"

namespace onebatch {

/// A part of use_compiled(). Collective.
void use_what_the_run_compiles(const RunToCompile& run);

}  // namespace onebatch
