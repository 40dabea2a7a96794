// The scale of an axis: what it shows, and where its numbers stand.
#pragma once

#include <string>
#include <vector>

namespace onebatch::launch::report {

enum class Scale { linear, logarithmic };

struct Axis {
  Scale scale = Scale::linear;
  double low = 0.0;
  double high = 1.0;
  std::vector<double> ticks = {};

  /// 0 at `low`, 1 at `high`.
  [[nodiscard]] double place(double value) const;
};

/// Round numbers that hold all from `low` to `high`. Logarithmic where both are above 0 and far apart.
Axis axis_of(double low, double high);
/// From `low` to `high` as they are, with round numbers between.
Axis exact_axis(double low, double high);

/// Short: "20k", "1e-05".
std::string axis_text(double value);

}  // namespace onebatch::launch::report
