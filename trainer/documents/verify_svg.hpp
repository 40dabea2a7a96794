// A picture of a verification.
#pragma once

#include "trainer/base/results.hpp"

#include <string>

namespace onebatch {

/// A row per parameter, in the model's order: the relative L2 of its gradient's error on a logarithmic axis, and that
/// of one single batch in the run's precision.
std::string verify_svg(const VerifyReport& report);

}  // namespace onebatch
