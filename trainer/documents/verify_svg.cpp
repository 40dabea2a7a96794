#include "trainer/documents/verify_svg.hpp"

#include "comm/visible_text.hpp"
#include "trainer/plan/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr double k_left = 280.0;
constexpr double k_width = 580.0;
constexpr double k_row = 16.0;
constexpr double k_top = 74.0;
constexpr double k_least = -18.0;  // powers of ten; an error of nothing stands here
constexpr double k_most = 2.0;
constexpr const char* k_ours = "#4477aa";
constexpr const char* k_single = "#999999";

double place(double error) {
  const double power = error > 0.0 ? std::clamp(std::log10(error), k_least, k_most) : k_least;
  return k_left + k_width * (power - k_least) / (k_most - k_least);
}

std::string line(double x, double y0, double y1, const char* style) {
  return fmt::format("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x, x, y0, y1, style);
}

std::string dot(double x, double y, double radius, const char* colour, const std::string& title) {
  return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"{}\"><title>", x, y, radius, colour) +
         comm::markup_text(title) + "</title></circle>\n";
}

}  // namespace

std::string verify_svg(const VerifyReport& report) {
  const double bottom = k_top + k_row * static_cast<double>(report.parameters.size());
  std::string body =
      svg::label(20, 24, "start",
                 fmt::format("{}: relative L2 {:.2g}, allowed {:.2g} ({}, BatchNorm {})",
                             report.pass ? "PASS" : (report.verdict == Verdict::cannot_judge ? "CANNOT JUDGE" : "FAIL"),
                             report.relative_l2, report.tolerance, report.precision, report.batch_norm),
                 " font-weight=\"bold\"");
  body += dot(30, 40, 4, k_ours, "") + svg::label(40, 44, "start", "the plan's gradient") +
          dot(190, 40, 3, k_single, "") + svg::label(200, 44, "start", "one single batch in " + report.precision) +
          svg::label(430, 44, "start", "line: what is allowed over all parameters");
  for (double power = k_least; power <= k_most; power += 2.0) {
    const double x = place(std::pow(10.0, power));
    body += line(x, k_top - 6, bottom, "stroke=\"#dddddd\"");
    body += svg::label(x, k_top - 10, "middle", power == k_least ? "0" : fmt::format("1e{:.0f}", power),
                       " font-size=\"10\"");
  }
  body += line(place(report.tolerance), k_top - 6, bottom, "stroke=\"#ee6677\" stroke-dasharray=\"4 3\"");
  double y = k_top + k_row / 2;
  for (const ParameterDifference& parameter : report.parameters) {
    body += svg::label(k_left - 10, y + 4, "end", parameter.name, " font-size=\"11\"");
    body += dot(place(parameter.reference_relative_l2), y, 3, k_single,
                fmt::format("one single batch: {:.3g}", parameter.reference_relative_l2));
    body += dot(place(parameter.relative_l2), y, 4, k_ours,
                parameter.name + fmt::format(": {:.3g}", parameter.relative_l2));
    y += k_row;
  }
  return svg::document(bottom + 20, body);
}

}  // namespace onebatch
