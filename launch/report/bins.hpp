// A curve of any number of values as one of few: what each part of it held, from the least value to the largest.
#pragma once

#include <cstdint>
#include <vector>

namespace onebatch::launch::report {

/// What one part of a curve held. Values that are not finite (or were not there) are in none.
struct Bin {
  double first = 0.0;  // along the curve, of its first value and of its last
  double last = 0.0;
  double least = 0.0;
  double mean = 0.0;
  double most = 0.0;
  std::int64_t values = 0;
};

/// What is said of a whole curve.
struct CurveFacts {
  std::int64_t values = 0;
  std::int64_t not_finite = 0;
  double last = 0.0;
  double last_at = 0.0;
  double least = 0.0;
  double least_at = 0.0;
  double most = 0.0;
  double most_at = 0.0;
};

/// At most `most_bins` bins of equally many values, which hold every finite value once; where there are no more values
/// than that, a bin for each. `x` and `y` are of one length.
std::vector<Bin> bins_of(const std::vector<double>& x, const std::vector<double>& y, std::size_t most_bins);
CurveFacts facts_of(const std::vector<double>& x, const std::vector<double>& y);

/// comm::quantile_between() of the finite ones; 0 where there is none.
double quantile(std::vector<double> values, double q);

}  // namespace onebatch::launch::report
