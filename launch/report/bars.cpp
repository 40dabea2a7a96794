#include "launch/report/bars.hpp"

#include "launch/report/html.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace onebatch::launch::report {
namespace {

constexpr double k_narrowest = 200.0;  // of a bar, in pixels, on a phone
constexpr double k_letter = 6.6;
constexpr int k_most_cuts = 40;  // more could not be told apart

std::string percent(double part) {
  return fmt::format("{:.3f}%", 100.0 * std::clamp(part, 0.0, 1.0));
}

std::string piece_svg(const Piece& piece) {
  const double width = std::clamp(piece.to, 0.0, 1.0) - std::clamp(piece.from, 0.0, 1.0);
  if (width <= 0.0) return {};
  std::string svg = fmt::format("<rect class=\"f{}\" x=\"{}\" width=\"{}\" y=\"1\" height=\"18\">",
                                static_cast<int>(piece.fill), percent(piece.from), percent(width));
  if (!piece.about.empty()) svg += fmt::format("<title>{}</title>", markup_text(piece.about));
  svg += "</rect>";
  for (int cut = 1; piece.cuts <= k_most_cuts && cut < piece.cuts; ++cut) {
    const std::string x = percent(piece.from + width * cut / piece.cuts);
    svg += fmt::format("<line class=\"cut\" x1=\"{}\" x2=\"{}\" y1=\"1\" y2=\"19\"/>", x, x);
  }
  if (piece.label.empty() || k_letter * static_cast<double>(piece.label.size()) > width * k_narrowest) return svg;
  return svg + fmt::format("<text class=\"t{}\" x=\"{}\" y=\"14\">{}</text>", static_cast<int>(piece.fill),
                           percent(piece.from + width / 2.0), markup_text(piece.label));
}

}  // namespace

std::string bar(const std::vector<Piece>& pieces, const std::string& label, const std::vector<double>& marks) {
  std::string svg = fmt::format("<svg class=\"bar\" role=\"img\" aria-label=\"{}\">", markup_text(label));
  for (const Piece& piece : pieces) svg += piece_svg(piece);
  for (const double mark : marks) {
    const std::string x = percent(mark);
    svg += fmt::format("<line class=\"mark\" x1=\"{}\" x2=\"{}\" y1=\"0\" y2=\"20\"/>", x, x);
  }
  return svg + "</svg>";
}

std::string bar_scale(const std::vector<Tick>& ticks) {
  std::string svg = "<svg class=\"scale\" aria-hidden=\"true\"><line x1=\"0\" x2=\"100%\" y1=\"1\" y2=\"1\"/>";
  for (const Tick& tick : ticks) {
    const char* anchor = tick.at < 0.06 ? "start" : (tick.at > 0.94 ? "end" : "middle");
    svg += fmt::format(
        "<line x1=\"{0}\" x2=\"{0}\" y1=\"1\" y2=\"6\"/><text x=\"{0}\" y=\"18\" text-anchor=\"{1}\">{2}</text>",
        percent(tick.at), anchor, markup_text(tick.text));
  }
  return svg + "</svg>";
}

std::string fill_key(Fill fill, const std::string& name) {
  return fmt::format(
      "<span class=\"key\"><svg width=\"22\" height=\"14\" aria-hidden=\"true\"><rect class=\"f{}\" x=\"1\" y=\"1\" "
      "width=\"20\" height=\"12\"/></svg> {}</span> ",
      static_cast<int>(fill), markup_text(name));
}

std::string fill_patterns() {
  const auto pattern = [](const char* id, int size, const char* drawn) {
    return fmt::format(
        "<pattern id=\"{0}\" width=\"{1}\" height=\"{1}\" patternUnits=\"userSpaceOnUse\"><rect class=\"{0}\" "
        "width=\"{1}\" height=\"{1}\"/>{2}</pattern>",
        id, size, drawn);
  };
  return "<svg class=\"defs\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>" +
         pattern("p1", 8, "<path d=\"M-2 2L2-2M0 8L8 0M6 10L10 6\"/>") +
         pattern("p2", 6, "<circle cx=\"3\" cy=\"3\" r=\"1.1\"/>") + pattern("p4", 6, "<path d=\"M0 3H6\"/>") +
         pattern("p5", 6, "<path d=\"M0 0L6 6M6 0L0 6\"/>") + "</defs></svg>\n";
}

}  // namespace onebatch::launch::report
