// Places at which a test makes a rank fail. In the library they do nothing; a test program links its own in their
// stead.
#pragma once

#include <cstdint>

namespace onebatch {

/// `place` is "start", "probe", "loader", "reader", "model", "exchange", "step", "late", "checkpoint", "copy", "write"
/// or "end"; `number` its step or size, the sample, or how many exchanges of BatchNorm's sums the step has had. Returns
/// by how many steps this rank is to believe itself ahead, or whether a CPU's figures are read late as a GPU's are: 0.
std::int64_t fault_point(const char* place, std::int64_t number);

}  // namespace onebatch
