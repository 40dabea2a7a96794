#include "launch/report/plan_page.hpp"

#include "launch/report/chart.hpp"
#include "launch/report/html.hpp"
#include "launch/report/page.hpp"
#include "launch/report/sections.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace onebatch::launch::report {
namespace {

std::string rate_text(double value) {
  return number_text(value) + " samples/s";
}

Curve& curve_of(const std::string& devices, std::vector<Curve>& curves) {
  const auto same = std::ranges::find(curves, devices, &Curve::name);
  if (same != curves.end()) return *same;
  return curves.emplace_back(Curve{.name = devices,
                                   .letter = letter_of(curves.size()),
                                   .look = static_cast<int>(curves.size()),
                                   .drawn = Drawn::as_dots});
}

Chart over_batches(std::vector<SweepPoint> points, const char* title, std::string (*text)(double),
                   double SweepPoint::*value) {
  std::ranges::stable_sort(points, {}, &SweepPoint::global_batch_size);
  Chart chart{.title = title, .x_name = "samples in a step", .text = text, .from_zero = true};
  for (const SweepPoint& point : points) {
    Curve& curve = curve_of(point.devices, chart.curves);
    if (!point.step_seconds) continue;
    curve.x.push_back(static_cast<double>(point.global_batch_size));
    curve.y.push_back(point.*value);
  }
  return chart;
}

std::string row(const SweepPoint& point) {
  const std::string begin =
      fmt::format("<tr><th scope=\"row\">{}</th>{}{}", markup_text(point.devices),
                  number_cell(count_text(point.num_ranks)), number_cell(count_text(point.global_batch_size)));
  if (!point.step_seconds)
    return begin + fmt::format("<td colspan=\"5\">no plan: {}</td></tr>\n", markup_text(point.note));
  const std::string none = number_cell("&#8211;");
  return begin + number_cell(exact(*point.step_seconds, seconds_text(*point.step_seconds))) +
         number_cell(exact(point.samples_per_second, number_text(point.samples_per_second))) +
         number_cell(exact(point.efficiency, percent_text(point.efficiency))) +
         (point.epoch_seconds > 0.0 ? number_cell(exact(point.epoch_seconds, seconds_text(point.epoch_seconds)))
                                    : none) +
         (point.cost_per_epoch ? number_cell(exact(*point.cost_per_epoch, number_text(*point.cost_per_epoch))) : none) +
         "</tr>\n";
}

std::string figures(const std::vector<SweepPoint>& points) {
  std::string head;
  for (const char* name :
       {"devices", "ranks", "global batch", "a step", "samples/s", "efficiency", "epoch", "its cost"})
    head += head_cell(name);
  std::string rows;
  for (const SweepPoint& point : points) rows += row(point);
  return table("Efficiency: of what all devices could do, each at its best rate and without waiting or reducing", head,
               rows);
}

}  // namespace

std::string plan_page(const EpochPlan& plan, const std::string& name, const std::string& drawn_at) {
  RunRecord record;
  record.name = name;
  record.plan = plan;
  return page_html(name, "A plan of onebatch, drawn " + drawn_at + ".", plan_section({record}));
}

std::string comparison_page(const std::vector<SweepPoint>& points, const std::string& drawn_at) {
  const std::string charts =
      chart_html(over_batches(points, "Samples per second", rate_text, &SweepPoint::samples_per_second)) +
      chart_html(over_batches(points, "Efficiency", percent_text, &SweepPoint::efficiency));
  return page_html("Clusters compared", "Plans of onebatch, drawn " + drawn_at + ".",
                   section("comparison", "Comparison",
                           fmt::format("<div class=\"charts\">\n{}</div>\n{}", charts, figures(points))));
}

}  // namespace onebatch::launch::report
