// What the plans predicted for a step, and what steps took.
#include "launch/report/chart.hpp"
#include "launch/report/html.hpp"
#include "launch/report/sections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch::launch::report {
namespace {

struct Measured {
  std::size_t begin = 0;  // of the columns
  std::size_t end = 0;
  double predicted = 0.0;
};

// Steps of one prediction each.
std::vector<Measured> spans_of(const RunRecord& run) {
  std::vector<Measured> parts;
  const std::vector<double>& step = run.metrics.columns.step;
  for (std::size_t i = 0; i < run.spans.size(); ++i) {
    const auto after = static_cast<double>(run.spans[i].after_step);
    const double until = i + 1 < run.spans.size() ? static_cast<double>(run.spans[i + 1].after_step) : HUGE_VAL;
    const auto place = [&](double value) {
      return static_cast<std::size_t>(std::upper_bound(step.begin(), step.end(), value) - step.begin());
    };
    const Measured part{place(after), place(until), run.spans[i].predicted_step_seconds};
    if (part.end > part.begin) parts.push_back(part);
  }
  return parts;
}

std::string row(const RunRecord& run, const Measured& part, const std::string& letter) {
  const StepColumns& columns = run.metrics.columns;
  const std::vector<double> seconds(columns.step_seconds.begin() + static_cast<std::ptrdiff_t>(part.begin),
                                    columns.step_seconds.begin() + static_cast<std::ptrdiff_t>(part.end));
  const double median = quantile(seconds, 0.5);
  const double p95 = quantile(seconds, 0.95);
  const double off = part.predicted > 0.0 ? median / part.predicted - 1.0 : 0.0;
  return fmt::format(
      "<tr>{}<td class=\"n\">{} to {}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td "
      "class=\"n\">{}{}</td></tr>\n",
      letter.empty() ? "" : fmt::format("<th scope=\"row\">{}</th>", letter), number_text(columns.step[part.begin]),
      number_text(columns.step[part.end - 1]), exact(part.predicted, seconds_text(part.predicted)),
      exact(median, seconds_text(median)), exact(p95, seconds_text(p95)), off >= 0.0 ? "+" : "", percent_text(off));
}

Chart chart_of(const Runs& runs, std::size_t i) {
  const RunRecord& run = runs[i];
  const StepColumns& columns = run.metrics.columns;
  Chart chart{
      .title = runs.size() == 1 ? "Seconds of a step" : fmt::format("Seconds of a step, {} {}", letter_of(i), run.name),
      .unit = "s",
      .text = seconds_text,
      .curves = {{.name = "measured",
                  .letter = "",
                  .look = static_cast<int>(i),
                  .x = columns.step,
                  .y = columns.step_seconds}},
      .level_name = "dashed: predicted",
      .may_cut = true,
      .from_zero = true};
  for (const Measured& part : spans_of(run)) {
    if (part.predicted > 0.0)
      chart.levels.push_back({columns.step[part.begin], columns.step[part.end - 1], part.predicted});
  }
  return chart;
}

}  // namespace

std::string prediction_section(const Runs& runs) {
  std::string rows;
  std::string charts;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const Measured& part : spans_of(runs[i])) rows += row(runs[i], part, runs.size() > 1 ? letter_of(i) : "");
    charts += chart_html(chart_of(runs, i));
  }
  if (rows.empty() && charts.empty()) return {};
  std::string html = fmt::format("<div class=\"charts\">\n{}</div>\n", charts);
  if (!rows.empty())
    html = table("Predicted and measured seconds of a step, for each plan; steps of short batches are among them",
                 (runs.size() > 1 ? head_cell("run") : "") + head_cell("steps") + head_cell("predicted") +
                     head_cell("median") + head_cell("95 % within") + head_cell("median over predicted"),
                 rows) +
           html;
  return section("prediction", "Predicted and measured", html);
}

}  // namespace onebatch::launch::report
