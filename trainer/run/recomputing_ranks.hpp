// Memory for time: which ranks compute activations again, of a program whose native code can do either.
#pragma once

#include "trainer/probe/rank_probe.hpp"
#include "trainer/run/planning_parts.hpp"

namespace onebatch {

/// Measures once more, all ranks computing activations again, where memory.recompute = "auto", the native code can, no
/// size is fixed, and there are ranks that memory limits to micro-batches which take longer for a sample than larger
/// ones would, or for which there is no plan. Then the ranks that should compute them again do, which is said, and
/// `answer` is of what all do. Collective.
void let_ranks_recompute(const PlanningParts& parts, const ProbeRequest& request, ProbeAnswer& answer);

}  // namespace onebatch
