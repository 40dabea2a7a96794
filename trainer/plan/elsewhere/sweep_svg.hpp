// A sweep as a picture.
#pragma once

#include "trainer/plan/elsewhere/sweep.hpp"

namespace onebatch {

/// Throughput and efficiency over the global batch, a line per cluster.
std::string sweep_svg(const std::vector<SweepPoint>& points);

}  // namespace onebatch
