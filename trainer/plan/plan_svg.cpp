#include "trainer/plan/plan_svg.hpp"

#include "trainer/base/formatted.hpp"
#include "trainer/plan/svg.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace onebatch {
namespace {

using svg::document;
using svg::escaped;
using svg::label;

constexpr std::array<const char*, 8> k_colours = {"#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb5566", "#777777"};
constexpr double k_left = 230.0;
constexpr double k_width = 640.0;
constexpr double k_row = 22.0;

// Of a scale that ends at a round number.
double nice_step(double most) {
  const double raw = most / 5.0;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10.0 * power;
}

double slowest(const Plan& plan) {
  double most = plan.predicted_step_seconds;
  for (const RankPlan& rank : plan.ranks) most = std::max(most, rank.predicted_seconds);
  return most;
}

std::string bars(const RankPlan& rank, double y, double per_second, const char* colour) {
  std::string body;
  double x = k_left;
  for (std::size_t run = 0; run < rank.micro_batches.size(); ++run) {
    const auto& [size, count] = rank.micro_batches[run];
    const double samples = static_cast<double>(std::max<std::int64_t>(rank.samples, 1));
    const double seconds = run < rank.micro_batch_seconds.size() ? rank.micro_batch_seconds[run]
                                                                 : rank.predicted_seconds * static_cast<double>(size) / samples;
    const double width = seconds * per_second;
    // So many that none could be seen are one bar.
    const bool together = width < 1.5;
    const std::int64_t drawn = together ? 1 : count;
    for (std::int64_t i = 0; i < drawn; ++i) {
      const double drawn_width = together ? width * static_cast<double>(count) : width;
      body +=
          formatted("<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" stroke=\"white\" stroke-width=\"0.8\"><title>",
                    x, y + 3.0, drawn_width, k_row - 6.0, size == 0 ? "#dddddd" : colour) +
          (size == 0 ? "a dummy" : std::to_string(size) + " samples") + formatted(", %.4g ms</title></rect>\n", seconds * 1e3);
      if (drawn_width > 26.0 && size > 0)
        body += label(x + drawn_width / 2.0, y + k_row - 7.0, "middle", std::to_string(size), " fill=\"white\" font-size=\"10\"");
      x += drawn_width;
    }
  }
  return body;
}

}  // namespace

std::string plan_svg(const std::vector<TitledPlan>& plans) {
  double most = 0.0;
  for (const TitledPlan& titled : plans) most = std::max(most, slowest(titled.plan));
  if (most <= 0.0) most = 1.0;
  const double per_second = k_width / most;
  std::map<std::string, const char*> colours;
  std::string body;
  double y = 10.0;
  for (const auto& [title, plan] : plans) {
    body += label(10.0, y + 16.0, "start", title + formatted(": a step takes %.4g ms", plan.predicted_step_seconds * 1e3),
                  " font-weight=\"bold\"");
    y += 26.0;
    const double top = y;
    const std::size_t rows = std::min(plan.ranks.size(), k_most_rows);
    for (std::size_t r = 0; r < rows; ++r, y += k_row) {
      const RankPlan& rank = plan.ranks[r];
      const auto colour = colours.try_emplace(rank.device, k_colours[colours.size() % k_colours.size()]).first->second;
      body += label(k_left - 8.0, y + k_row - 7.0, "end", formatted("%d  ", rank.rank) + rank.device.substr(0, 26));
      body += bars(rank, y, per_second, colour);
      body += label(k_left + rank.predicted_seconds * per_second + 4.0, y + k_row - 7.0, "start",
                    formatted("%lld", static_cast<long long>(rank.samples)), " fill=\"#666666\" font-size=\"10\"");
    }
    const double end = k_left + plan.predicted_step_seconds * per_second;
    body +=
        formatted("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"black\" stroke-dasharray=\"4 3\"/>\n", end, top, end, y);
    if (rows < plan.ranks.size()) {
      body += label(k_left, y + 14.0, "start", "and " + std::to_string(plan.ranks.size() - rows) + " more ranks");
      y += 18.0;
    }
    y += 14.0;
  }
  const double step = nice_step(most);
  for (double t = 0.0; t <= most * 1.0001; t += step) {
    const double x = k_left + t * per_second;
    body += formatted("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"black\"/>\n", x, y, x, y + 5.0) +
            label(x, y + 18.0, "middle", formatted("%.4g ms", t * 1e3));
  }
  body += formatted("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"black\"/>\n", k_left, y, k_left + k_width, y);
  body += label(k_left, y + 38.0, "start", "bars: micro-batches, with their samples; beside them the rank's");
  return document(y + 52.0, body);
}

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
    std::string body = label(90.0, top - 8.0, "start", title, " font-weight=\"bold\"");
    const double step = nice_step(most_y);
    for (double value = 0.0; value <= most_y * 1.0001; value += step) {
      body += formatted("<line x1=\"90\" y1=\"%.1f\" x2=\"650\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n", y(value), y(value)) +
              label(84.0, y(value) + 4.0, "end", formatted(value >= 100.0 ? "%.0f" : "%.4g", value));
    }
    std::map<std::int64_t, bool> said;
    for (const SweepPoint& point : points) {
      if (!said.emplace(point.global_batch_size, true).second) continue;
      body +=
          label(x(static_cast<double>(point.global_batch_size)), top + k_height + 18.0, "middle", std::to_string(point.global_batch_size));
    }
    return body + label(370.0, top + k_height + 36.0, "middle", "global batch");
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
    const char* colour = k_colours[i % k_colours.size()];
    std::string path;
    std::string dots;
    for (const SweepPoint* point : of_devices[order[i]]) {
      if (!point->step_seconds) continue;
      const double x = chart.x(static_cast<double>(point->global_batch_size));
      const double y = chart.y(value(*point));
      path += formatted("%s%.1f %.1f", path.empty() ? "M" : " L", x, y);
      dots += formatted("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x, y, colour);
    }
    body.append("<path d=\"").append(path).append(formatted("\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", colour)).append(dots);
    const double y = chart.top + 14.0 + 18.0 * static_cast<double>(i);
    body += formatted("<rect x=\"664\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", y - 10.0, colour) +
            label(682.0, y, "start", order[i].substr(0, 34));
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
  return document(700.0, rate.frame(points) + lines(rate, points, [](const SweepPoint& p) { return p.samples_per_second; }) +
                             efficiency.frame(points) + lines(efficiency, points, [](const SweepPoint& p) { return p.efficiency; }));
}

}  // namespace onebatch
