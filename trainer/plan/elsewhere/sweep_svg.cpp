#include "trainer/plan/elsewhere/sweep_svg.hpp"

#include "trainer/plan/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace onebatch {
namespace {

struct Chart {
  double top;
  double most_x, least_x;  // log2 of the global batch
  double most_y;
  std::string title;

  static constexpr double k_height = 260.0;
  [[nodiscard]] double x(double batch) const {
    const double span = most_x > least_x ? most_x - least_x : 1.0;
    return 90.0 + (std::log2(batch) - least_x) / span * 560.0;
  }
  [[nodiscard]] double y(double value) const { return top + k_height - value / most_y * k_height; }

  [[nodiscard]] std::string frame(const std::vector<SweepPoint>& points) const {
    std::string body = svg::label(90.0, top - 8.0, "start", title, " font-weight=\"bold\"");
    const double step = svg::nice_step(most_y);
    for (double value = 0.0; value <= most_y * 1.0001; value += step) {
      body += fmt::format("<line x1=\"90\" y1=\"{:.1f}\" x2=\"650\" y2=\"{:.1f}\" stroke=\"#dddddd\"/>\n", y(value),
                          y(value)) +
              svg::label(84.0, y(value) + 4.0, "end",
                         value >= 100.0 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value));
    }
    std::map<std::int64_t, bool> said;
    for (const SweepPoint& point : points) {
      if (!said.emplace(point.global_batch_size, true).second) continue;
      body += svg::label(x(static_cast<double>(point.global_batch_size)), top + k_height + 18.0, "middle",
                         std::to_string(point.global_batch_size));
    }
    return body + svg::label(370.0, top + k_height + 36.0, "middle", "global batch");
  }
};

std::string lines(const Chart& chart, const std::vector<SweepPoint>& points, double (*value)(const SweepPoint&)) {
  std::map<std::string, std::vector<const SweepPoint*>> of_devices;
  std::vector<std::string> order;
  for (const SweepPoint& point : points) {
    if (!of_devices.contains(point.devices)) order.push_back(point.devices);
    of_devices[point.devices].push_back(&point);
  }
  std::string body;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const char* colour = svg::k_colours[i % svg::k_colours.size()];
    std::string path;
    std::string dots;
    for (const SweepPoint* point : of_devices[order[i]]) {
      if (!point->step_seconds) continue;
      const double x = chart.x(static_cast<double>(point->global_batch_size));
      const double y = chart.y(value(*point));
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x, y);
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x, y, colour);
    }
    body.append("<path d=\"")
        .append(path)
        .append(fmt::format("\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", colour))
        .append(dots);
    const double y = chart.top + 14.0 + 18.0 * static_cast<double>(i);
    body += fmt::format("<rect x=\"664\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", y - 10.0, colour) +
            svg::label(682.0, y, "start", order[i].substr(0, 34));
  }
  return body;
}

}  // namespace

std::string sweep_svg(const std::vector<SweepPoint>& points) {
  double least = HUGE_VAL;
  double most = 0.0;
  double throughput = 0.0;
  for (const SweepPoint& point : points) {
    least = std::min(least, std::log2(static_cast<double>(point.global_batch_size)));
    most = std::max(most, std::log2(static_cast<double>(point.global_batch_size)));
    throughput = std::max(throughput, point.samples_per_second);
  }
  const Chart rate{30.0, most, least, throughput > 0.0 ? throughput * 1.05 : 1.0, "samples per second"};
  const Chart efficiency{380.0, most, least, 1.05, "efficiency: of what all devices could do"};
  return svg::document(700.0, rate.frame(points) +
                                  lines(rate, points, [](const SweepPoint& p) { return p.samples_per_second; }) +
                                  efficiency.frame(points) +
                                  lines(efficiency, points, [](const SweepPoint& p) { return p.efficiency; }));
}

}  // namespace onebatch
