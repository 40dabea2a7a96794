// What of one machine's facts is well and what is not, why that matters and what mends it. Pure.
#pragma once

#include "launch/doctor/finding.hpp"
#include "launch/doctor/machine_facts.hpp"

#include <vector>

namespace onebatch::launch {

/// In the order in which people need them: GPUs first.
std::vector<Finding> host_findings(const MachineFacts& facts);

/// What of it is about GPUs; host_findings() has these first.
std::vector<Finding> gpu_findings(const MachineFacts& facts);

/// What ranks have that should be the same on all, and which of them differ from rank 0. In the ranks' order.
Finding same_versions(const std::vector<MachineFacts>& ranks);
Finding same_environment(const std::vector<MachineFacts>& ranks);

/// `offsets_seconds`: each rank's clock against rank 0's.
Finding same_time(const std::vector<MachineFacts>& ranks, const std::vector<double>& offsets_seconds);

}  // namespace onebatch::launch
