// Curves over the steps of runs.
#pragma once

#include "launch/report/bins.hpp"

#include <string>
#include <vector>

namespace onebatch::launch::report {

enum class Drawn { as_line, as_dots };

struct Curve {
  std::string name;
  std::string letter = {};  // at its end, where there are several
  int look = 0;             // colour and dashes
  Drawn drawn = Drawn::as_line;
  std::vector<double> x = {};
  std::vector<double> y = {};
};

/// A value that holds for a part of the steps, as a prediction does.
struct Level {
  double from = 0.0;
  double to = 0.0;
  double value = 0.0;
};

/// Something that happened at a step.
struct Mark {
  double x = 0.0;
  char letter = '?';
};

struct Chart {
  std::string title;
  std::string x_name = "step";
  std::string unit = {};                  // of the values, as the page's script writes them
  std::string (*text)(double) = nullptr;  // values as people read them
  std::vector<Curve> curves = {};
  std::vector<Level> levels = {};
  std::string level_name = {};
  std::vector<Mark> marks = {};
  bool may_cut = false;  // a few values far above all others may stand above the axis, which is said
  bool from_zero = false;
};

inline constexpr std::size_t k_most_bins = 300;
inline constexpr int k_num_looks = 8;

/// A figure: the picture, what it shows in figures, and its numbers for the page's script. Empty where there is no
/// finite value.
std::string chart_html(const Chart& chart);

}  // namespace onebatch::launch::report
