#include "trainer/plan/plan_svg.hpp"

#include "trainer/plan/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace onebatch {
namespace {

using svg::document;
using svg::k_colours;
using svg::label;
using svg::nice_step;

constexpr double k_left = 230.0;
constexpr double k_width = 640.0;
constexpr double k_row = 22.0;

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
    const double seconds = run < rank.micro_batch_seconds.size()
                               ? rank.micro_batch_seconds[run]
                               : rank.predicted_seconds * static_cast<double>(size) / samples;
    const double width = seconds * per_second;
    // So many that none could be seen are one bar.
    const bool together = width < 1.5;
    const std::int64_t drawn = together ? 1 : count;
    for (std::int64_t i = 0; i < drawn; ++i) {
      const double drawn_width = together ? width * static_cast<double>(count) : width;
      body += fmt::format(
                  "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" stroke=\"white\" "
                  "stroke-width=\"0.8\"><title>",
                  x, y + 3.0, drawn_width, k_row - 6.0, size == 0 ? "#dddddd" : colour) +
              (size == 0 ? "a dummy" : fmt::format("{} samples", size)) +
              fmt::format(", {:.4g} ms</title></rect>\n", seconds * 1e3);
      if (drawn_width > 26.0 && size > 0)
        body += label(x + drawn_width / 2.0, y + k_row - 7.0, "middle", std::to_string(size),
                      " fill=\"white\" font-size=\"10\"");
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
    body += label(10.0, y + 16.0, "start",
                  title + fmt::format(": a step takes {:.4g} ms", plan.predicted_step_seconds * 1e3),
                  " font-weight=\"bold\"");
    y += 26.0;
    const double top = y;
    const std::size_t rows = std::min(plan.ranks.size(), k_most_rows);
    for (std::size_t r = 0; r < rows; ++r, y += k_row) {
      const RankPlan& rank = plan.ranks[r];
      const auto colour = colours.try_emplace(rank.device, k_colours[colours.size() % k_colours.size()]).first->second;
      body += label(k_left - 8.0, y + k_row - 7.0, "end", fmt::format("{}  {}", rank.rank, rank.device.substr(0, 26)));
      body += bars(rank, y, per_second, colour);
      body += label(k_left + rank.predicted_seconds * per_second + 4.0, y + k_row - 7.0, "start",
                    std::to_string(rank.samples), " fill=\"#666666\" font-size=\"10\"");
    }
    const double end = k_left + plan.predicted_step_seconds * per_second;
    body += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"black\" stroke-dasharray=\"4 3\"/>\n",
        end, top, end, y);
    if (rows < plan.ranks.size()) {
      body += label(k_left, y + 14.0, "start", fmt::format("and {} more ranks", plan.ranks.size() - rows));
      y += 18.0;
    }
    y += 14.0;
  }
  const double step = nice_step(most);
  for (double t = 0.0; t <= most * 1.0001; t += step) {
    const double x = k_left + t * per_second;
    body += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"black\"/>\n", x, y, x,
                        y + 5.0) +
            label(x, y + 18.0, "middle", fmt::format("{:.4g} ms", t * 1e3));
  }
  body += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"black\"/>\n", k_left, y,
                      k_left + k_width, y);
  body += label(k_left, y + 38.0, "start", "bars: micro-batches, with their samples; beside them the rank's");
  return document(y + 52.0, body);
}

}  // namespace onebatch
