// The plan as a table that a person can read.
#pragma once

#include "trainer/base/plan.hpp"

namespace onebatch {

/// A line per rank (rank, device, share, micro-batches, predicted time, idle share), then the step's time beside an
/// equal and a memory-proportional split, then the notes. Ends with a newline.
std::string plan_table(const Plan& plan);
/// The main plan and, where there is one, the last short batch's.
std::string plan_table(const EpochPlan& plan);

}  // namespace onebatch
