// Bars as wide as the page lets them be: text in them keeps its size.
#pragma once

#include <string>
#include <vector>

namespace onebatch::launch::report {

/// What a piece of a bar stands for; each has a colour and a pattern of its own.
enum class Fill { compute, data_wait, communication, idle, rest, over };
constexpr int k_num_fills = 6;

struct Piece {
  double from = 0.0;  // parts of the bar's width
  double to = 0.0;
  Fill fill = Fill::compute;
  std::string label = {};  // drawn where it has room on a phone
  std::string about = {};  // said where somebody points at it
  int cuts = 1;            // equal parts that it is cut into
};

/// `label` says it in words to those who do not see it; `marks`: dashed lines, parts of the width.
std::string bar(const std::vector<Piece>& pieces, const std::string& label, const std::vector<double>& marks = {});
/// A scale below bars: texts at parts of the width.
struct Tick {
  double at = 0.0;
  std::string text;
};
std::string bar_scale(const std::vector<Tick>& ticks);
/// A square of a fill, and its name.
std::string fill_key(Fill fill, const std::string& name);
/// The patterns, once in a page.
std::string fill_patterns();

}  // namespace onebatch::launch::report
