#include "trainer/plan/svg.hpp"

#include "comm/visible_text.hpp"

#include <fmt/format.h>

#include <cmath>

namespace onebatch::svg {

double nice_step(double most) {
  const double raw = most / 5.0;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10.0 * power;
}

std::string label(double x, double y, const char* anchor, const std::string& text, const char* style) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>", x, y, anchor, style) +
         comm::markup_text(text) + "</text>\n";
}

std::string document(double height, const std::string& body) {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 {:.0f}\" font-family=\"sans-serif\" "
             "font-size=\"12\">\n",
             height) +
         "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" + body + "</svg>\n";
}

}  // namespace onebatch::svg
