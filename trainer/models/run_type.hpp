// The type of what a program holds beside its parameters, in a run.
#pragma once

#include <c10/core/ScalarType.h>

namespace onebatch {

/// Of a buffer or constant of the type `own` in a program whose own type is `program`: the run's. But what is of a
/// wider type than both has it for a reason, as float64 has in times and large counts, and keeps it.
at::ScalarType run_type(at::ScalarType own, at::ScalarType program, at::ScalarType run);

}  // namespace onebatch
