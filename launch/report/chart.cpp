#include "launch/report/chart.hpp"

#include "launch/report/axis.hpp"
#include "launch/report/html.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace onebatch::launch::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr double k_left = 52.0;
constexpr double k_right = 362.0;
constexpr double k_top = 16.0;
constexpr double k_bottom = 190.0;
constexpr double k_letter_height = 11.0;
constexpr std::size_t k_most_marks = 24;

struct Drawing {
  const Chart& chart;
  std::vector<std::vector<Bin>> bins;  // of each curve
  Axis x;
  Axis y;
  double cut = HUGE_VAL;  // values of curves that are larger are drawn here

  [[nodiscard]] double px(double value) const { return k_left + x.place(value) * (k_right - k_left); }
  [[nodiscard]] double py(double value) const {
    return k_bottom - std::clamp(y.place(value), -0.02, 1.02) * (k_bottom - k_top);
  }
  [[nodiscard]] double py_of_curve(double value) const { return py(std::min(value, cut)); }
};

// Up to where the axis goes where a few values are far above all others: the first steps of a run, as a rule.
double cut_of(const std::vector<std::vector<Bin>>& bins) {
  std::vector<double> tops;
  for (const auto& of_curve : bins) {
    for (const Bin& bin : of_curve) tops.push_back(bin.most);
  }
  const double most = quantile(tops, 1.0);
  const double usual = quantile(tops, 0.95);
  return most > 3.0 * usual && usual > 0.0 ? 1.5 * usual : HUGE_VAL;
}

Axis y_axis(const Drawing& drawing) {
  double low = HUGE_VAL;
  double high = -HUGE_VAL;
  for (const auto& of_curve : drawing.bins) {
    for (const Bin& bin : of_curve) {
      low = std::min(low, bin.least);
      high = std::max(high, bin.most);
    }
  }
  high = std::min(high, drawing.cut);
  for (const Level& level : drawing.chart.levels) {
    low = std::min(low, level.value);
    high = std::max(high, level.value);
  }
  return drawing.chart.from_zero && low >= 0.0 ? axis_of(0.0, std::max(high, 1e-300)) : axis_of(low, high);
}

Axis x_axis(const std::vector<std::vector<Bin>>& bins) {
  double low = HUGE_VAL;
  double high = -HUGE_VAL;
  for (const auto& of_curve : bins) {
    if (of_curve.empty()) continue;
    low = std::min(low, of_curve.front().first);
    high = std::max(high, of_curve.back().last);
  }
  return exact_axis(low, high);
}

std::string frame(const Drawing& drawing) {
  std::string svg;
  double last_label = HUGE_VAL;
  for (const double tick : drawing.y.ticks) {
    const double y = drawing.py(tick);
    svg += fmt::format("<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", k_left,
                       k_right, y, y);
    if (last_label - y < k_letter_height) continue;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"e\">{}</text>", k_left - 5.0, y + 4.0, axis_text(tick));
    last_label = y;
  }
  for (const double tick : drawing.x.ticks) {
    const double x = drawing.px(tick);
    svg += fmt::format("<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>", x,
                       k_bottom, k_bottom + 4.0);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"m\">{}</text>", x, k_bottom + 16.0, axis_text(tick));
  }
  svg += fmt::format("<line class=\"axis\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", k_left, k_right,
                     k_bottom, k_bottom);
  return svg + fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"m\">{}{}</text>\n", (k_left + k_right) / 2.0,
                           k_bottom + 30.0, markup_text(drawing.chart.x_name),
                           drawing.y.scale == Scale::logarithmic ? "; logarithmic upwards" : "");
}

std::string point(const Drawing& drawing, const Bin& bin, double value) {
  return fmt::format("{:.1f} {:.1f}", drawing.px((bin.first + bin.last) / 2.0), drawing.py_of_curve(value));
}

std::string curve_svg(const Drawing& drawing, const Curve& curve, const std::vector<Bin>& bins) {
  std::string line;
  std::string upper;
  std::string lower;
  std::string dots;
  bool several = false;
  for (const Bin& bin : bins) {
    const char begin = line.empty() ? 'M' : 'L';
    line += fmt::format("{}{}", begin, point(drawing, bin, bin.mean));
    upper += fmt::format("{}{}", begin, point(drawing, bin, bin.most));
    lower.insert(0, fmt::format("L{}", point(drawing, bin, bin.least)));
    several = several || bin.values > 1;
    if (bins.size() == 1 || (curve.drawn == Drawn::as_dots && bins.size() <= 60))
      dots += fmt::format("<circle class=\"c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\"/>", curve.look % k_num_looks,
                          drawing.px((bin.first + bin.last) / 2.0), drawing.py_of_curve(bin.mean));
  }
  const int look = curve.look % k_num_looks;
  std::string svg;
  if (several) svg += fmt::format("<path class=\"b{}\" d=\"{}{}Z\"/>", look, upper, lower);
  return svg + fmt::format("<path class=\"l{}\" d=\"{}\"/>", look, line) + dots + "\n";
}

std::string levels_svg(const Drawing& drawing) {
  std::string svg;
  for (const Level& level : drawing.chart.levels)
    svg += fmt::format("<line class=\"level\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>",
                       drawing.px(level.from), drawing.px(level.to), drawing.py(level.value), drawing.py(level.value));
  return svg;
}

std::string marks_svg(const Drawing& drawing) {
  std::string svg;
  double last = -HUGE_VAL;
  for (std::size_t i = 0; i < std::min(drawing.chart.marks.size(), k_most_marks); ++i) {
    const Mark& mark = drawing.chart.marks[i];
    const double x = drawing.px(mark.x);
    if (!(x >= k_left - 1.0 && x <= k_right + 1.0)) continue;
    svg += fmt::format("<line class=\"event\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>", x, k_top,
                       k_bottom);
    if (x - last < k_letter_height) continue;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"m\">{}</text>", x, k_top - 4.0, mark.letter);
    last = x;
  }
  return svg;
}

// Beside the ends of the curves, none on another.
std::string letters_svg(const Drawing& drawing) {
  struct Letter {
    double y;
    const Curve* curve;
  };
  std::vector<Letter> letters;
  for (std::size_t i = 0; i < drawing.bins.size(); ++i) {
    const Curve& curve = drawing.chart.curves[i];
    if (!curve.letter.empty() && !drawing.bins[i].empty())
      letters.push_back({drawing.py_of_curve(drawing.bins[i].back().mean), &curve});
  }
  std::sort(letters.begin(), letters.end(), [](const Letter& a, const Letter& b) { return a.y < b.y; });
  std::string svg;
  double last = -HUGE_VAL;
  for (const Letter& letter : letters) {
    last = std::max(letter.y, last + k_letter_height);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"w{}\">{}</text>", k_right + 4.0, last + 4.0,
                       letter.curve->look % k_num_looks, markup_text(letter.curve->letter));
  }
  return svg;
}

std::string facts_html(const Drawing& drawing, const Curve& curve) {
  const CurveFacts facts = facts_of(curve.x, curve.y);
  const auto said = [&](const char* what, double value, double at) {
    const bool steps = drawing.chart.x_name == "step";
    return fmt::format("{} {} at {}{}{}", what, exact(value, drawing.chart.text(value)), steps ? "step " : "",
                       exact(at, count_text(std::llround(at))), steps ? "" : fmt::format(" {}", drawing.chart.x_name));
  };
  std::string html =
      drawing.bins.size() > 1
          ? fmt::format(
                "<svg class=\"swatch\" width=\"26\" height=\"10\" aria-hidden=\"true\"><path class=\"l{0}\" "
                "d=\"M1 5H25\"/>{2}</svg><b>{1}</b>: ",
                curve.look % k_num_looks, markup_text(curve.name),
                curve.drawn == Drawn::as_dots
                    ? fmt::format("<circle class=\"c{}\" cx=\"13\" cy=\"5\" r=\"2.6\"/>", curve.look % k_num_looks)
                    : "")
          : "";
  if (facts.values == 0) return fmt::format("<p class=\"facts\">{}no finite value</p>\n", html);
  html += said("last", facts.last, facts.last_at) + "; " + said("least", facts.least, facts.least_at) + "; " +
          said("largest", facts.most, facts.most_at);
  if (facts.not_finite > 0) html += fmt::format("; {} not finite or not there", count_text(facts.not_finite));
  const auto above = std::count_if(curve.y.begin(), curve.y.end(), [&](double value) { return value > drawing.cut; });
  if (above > 0) html += fmt::format("; {} above the axis", count_text(above));
  return fmt::format("<p class=\"facts\">{}</p>\n", html);
}

// How much a point stands for.
std::string reduction_html(const Drawing& drawing) {
  std::int64_t most = 0;
  for (const auto& of_curve : drawing.bins) {
    for (const Bin& bin : of_curve) most = std::max(most, bin.values);
  }
  std::string html;
  if (most > 1)
    html += fmt::format("up to {} values a point: the line is their mean, the band goes from the least to the largest",
                        count_text(most));
  if (!drawing.chart.levels.empty())
    html += fmt::format("{}{}", html.empty() ? "" : "; ", markup_text(drawing.chart.level_name));
  return fmt::format("<p class=\"read\">{}</p>\n", html);
}

// Nine digits: more than anybody reads, half of what all of them take.
double short_number(double value) {
  return std::strtod(fmt::format("{:.9g}", value).c_str(), nullptr);
}

std::string numbers(const Drawing& drawing) {
  Json json = {{"box", {k_left, k_right, k_top, k_bottom}},
               {"x", {drawing.x.low, drawing.x.high}},
               {"y", {drawing.y.low, drawing.y.high}},
               {"logarithmic", drawing.y.scale == Scale::logarithmic},
               {"cut", std::isfinite(drawing.cut) ? Json(drawing.cut) : Json(nullptr)},
               {"x_name", drawing.chart.x_name},
               {"unit", drawing.chart.unit},
               {"curves", Json::array()}};
  for (std::size_t i = 0; i < drawing.bins.size(); ++i) {
    Json rows = Json::array();
    for (const Bin& bin : drawing.bins[i])
      rows.push_back(
          {bin.first, bin.last, short_number(bin.least), short_number(bin.mean), short_number(bin.most), bin.values});
    json["curves"].push_back({{"name", drawing.chart.curves[i].name}, {"bins", std::move(rows)}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string chart_html(const Chart& chart) {
  Drawing drawing{chart, {}, {}, {}};
  bool empty = true;
  for (const Curve& curve : chart.curves) {
    drawing.bins.push_back(bins_of(curve.x, curve.y, k_most_bins));
    empty = empty && drawing.bins.back().empty();
  }
  if (empty) return {};
  if (chart.may_cut) drawing.cut = cut_of(drawing.bins);
  drawing.x = x_axis(drawing.bins);
  drawing.y = y_axis(drawing);
  if (std::isfinite(drawing.cut)) drawing.cut = std::max(drawing.cut, drawing.y.high);
  std::string svg = frame(drawing) + marks_svg(drawing);
  std::string facts;
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    if (!drawing.bins[i].empty()) svg += curve_svg(drawing, chart.curves[i], drawing.bins[i]);
    facts += facts_html(drawing, chart.curves[i]);
  }
  svg += levels_svg(drawing) + letters_svg(drawing);
  return fmt::format(
      "<figure class=\"chart\"><figcaption>{0}</figcaption>\n<svg viewBox=\"0 0 380 226\" role=\"img\" tabindex=\"0\" "
      "aria-label=\"{0} by {1}; the figures stand below\">\n{2}</svg>\n{3}{4}"
      "<script type=\"application/json\">{5}</script></figure>\n",
      markup_text(chart.title), markup_text(chart.x_name), svg, reduction_html(drawing), facts,
      json_in_html(numbers(drawing)));
}

}  // namespace onebatch::launch::report
