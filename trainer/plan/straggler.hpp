// How long ranks wait for the slowest of them where their times vary: it is rarely the same one, and it is always late.
#pragma once

#include <vector>

namespace onebatch {

/// What a rank takes, in a median step and in one of four.
struct VaryingTime {
  double seconds = 0.0;
  // A quarter of the steps takes seconds * (1 + jitter) or more, falling off as a normal distribution does.
  double jitter = 0.0;
};

/// The median of the largest of independent times: never less than the largest median, and that without jitter.
double median_of_slowest(const std::vector<VaryingTime>& ranks);

}  // namespace onebatch
