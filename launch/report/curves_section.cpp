// Losses, rates and all that was validated, over the steps.
#include "launch/report/chart.hpp"
#include "launch/report/html.hpp"
#include "launch/report/sections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch::launch::report {
namespace {

constexpr std::size_t k_most_validation_charts = 12;
constexpr std::size_t k_most_numbers = 200;
constexpr std::size_t k_most_classes = 30;

std::string rate_text(double value) {
  return number_text(value) + " samples/s";
}

// Runs of unlike global batches are compared by the samples that they have used.
bool by_samples(const Runs& runs) {
  return std::any_of(runs.begin(), runs.end(), [&](const RunRecord& run) {
    return run.setting("batch.global_batch_size") != runs.front().setting("batch.global_batch_size");
  });
}

class Curves {
 public:
  explicit Curves(const Runs& runs) : runs_(runs), by_samples_(by_samples(runs)) {}

  std::string html() const {
    std::string html = training_loss();
    html += chart(of_steps("Learning rate", number_text, &StepColumns::lr));
    html += chart(of_steps("Gradient norm, before clipping", number_text, &StepColumns::grad_norm));
    Chart rate = of_steps("Samples per second", rate_text, &StepColumns::samples_per_second);
    rate.from_zero = rate.may_cut = true;
    html += chart(std::move(rate));
    html += chart(of_steps("Loss scale", number_text, &StepColumns::loss_scale));
    const std::vector<std::string> names = validated();
    for (std::size_t i = 0; i < std::min(names.size(), k_most_validation_charts); ++i) html += validation(names[i]);
    return html;
  }

  std::string other_numbers() const {
    const std::vector<std::string> names = validated();
    std::string rows;
    for (std::size_t i = k_most_validation_charts; i < std::min(names.size(), k_most_numbers); ++i) {
      std::string cells;
      for (const RunRecord& run : runs_) {
        const ValidationColumn* column = column_of(run, names[i]);
        cells +=
            number_cell(column == nullptr ? "&#8211;" : exact(column->value.back(), number_text(column->value.back())));
      }
      rows += fmt::format("<tr><th scope=\"row\">{}</th>{}</tr>\n", markup_text(names[i]), cells);
    }
    if (rows.empty()) return {};
    std::string head = head_cell("number");
    for (std::size_t i = 0; i < runs_.size(); ++i) head += head_cell(runs_.size() == 1 ? "last" : letter_of(i));
    std::string html = table("Further numbers of the last validation", head, rows);
    if (names.size() > k_most_numbers)
      html += fmt::format("<p class=\"note\">{} more are in validation.jsonl.</p>\n", names.size() - k_most_numbers);
    return html;
  }

 private:
  const std::vector<double>& places(const StepColumns& columns) const {
    return by_samples_ ? columns.consumed_samples : columns.step;
  }

  Curve curve(std::size_t run) const {
    return {.name = runs_.size() > 1 ? fmt::format("{} {}", letter_of(run), runs_[run].name) : "training",
            .letter = runs_.size() > 1 ? letter_of(run) : "",
            .look = static_cast<int>(run)};
  }

  Chart of_steps(const char* title, std::string (*text)(double), std::vector<double> StepColumns::*column) const {
    Chart chart{.title = title, .x_name = by_samples_ ? "samples" : "step", .text = text};
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const StepColumns& columns = runs_[i].metrics.columns;
      Curve one = curve(i);
      one.x = places(columns);
      one.y = columns.*column;
      chart.curves.push_back(std::move(one));
    }
    return chart;
  }

  // What changed the course of one run.
  std::vector<Mark> marks() const {
    std::vector<Mark> marks;
    if (runs_.size() > 1) return marks;
    for (const RunEvent& event : runs_.front().events) {
      if (!event.step || by_samples_) continue;
      const auto step = static_cast<double>(*event.step);
      if (event.kind == "replanned") marks.push_back({step, 'P'});
      if (event.kind == "out_of_memory") marks.push_back({step, 'M'});
      if (event.kind == "training_begins" && *event.step > 0) marks.push_back({step, 'R'});
    }
    return marks;
  }

  std::string training_loss() const {
    Chart chart = of_steps(runs_.size() == 1 ? "Loss" : "Training loss", number_text, &StepColumns::loss);
    chart.marks = marks();
    const ValidationColumn* validated = runs_.size() == 1 ? column_of(runs_.front(), "loss") : nullptr;
    if (validated != nullptr)
      chart.curves.push_back(
          {.name = "validation", .look = 1, .drawn = Drawn::as_dots, .x = validated->step, .y = validated->value});
    return this->chart(std::move(chart));
  }

  std::string validation(const std::string& name) const {
    Chart chart{
        .title = fmt::format("Validation: {}", name), .x_name = by_samples_ ? "samples" : "step", .text = number_text};
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const ValidationColumn* column = column_of(runs_[i], name);
      if (column == nullptr) continue;
      Curve one = curve(i);
      if (runs_.size() == 1) one.look = 1;
      one.drawn = Drawn::as_dots;
      one.x = by_samples_ ? column->consumed_samples : column->step;
      one.y = column->value;
      chart.curves.push_back(std::move(one));
    }
    return this->chart(std::move(chart));
  }

  // A curve that is nowhere finite is left out; so are runs that have none.
  static std::string chart(Chart chart) {
    for (Curve& curve : chart.curves) leave_out_the_nowhere(curve);
    std::erase_if(chart.curves, [](const Curve& curve) {
      return std::none_of(curve.y.begin(), curve.y.end(), [](double value) { return std::isfinite(value); });
    });
    return chart_html(chart);
  }

  // Values of which no line says where along the run they were.
  static void leave_out_the_nowhere(Curve& curve) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
      if (!std::isfinite(curve.x[i])) continue;
      curve.x[kept] = curve.x[i];
      curve.y[kept++] = curve.y[i];
    }
    curve.x.resize(kept);
    curve.y.resize(kept);
  }

  static const ValidationColumn* column_of(const RunRecord& run, const std::string& name) {
    for (const ValidationColumn& column : run.validations.columns) {
      if (column.name == name) return &column;
    }
    return nullptr;
  }

  std::vector<std::string> validated() const {
    std::vector<std::string> names;
    for (const RunRecord& run : runs_) {
      for (const ValidationColumn& column : run.validations.columns) {
        if (std::find(names.begin(), names.end(), column.name) == names.end()) names.push_back(column.name);
      }
    }
    return names;
  }

  const Runs& runs_;
  bool by_samples_;
};

std::string confusion(const RunRecord& run, const std::string& heading) {
  const auto& matrix = run.validations.last_confusion;
  if (matrix.empty()) return {};
  if (matrix.size() > k_most_classes)
    return heading + fmt::format("<p class=\"note\">The confusion matrix of {} classes is in validation.jsonl.</p>\n",
                                 matrix.size());
  std::string head = "<td></td>";
  std::string rows;
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    head += head_cell(fmt::format("{}", i));
    std::string cells;
    for (std::size_t j = 0; j < matrix.size(); ++j)
      cells += fmt::format("<td class=\"n{}\">{}</td>", i == j ? " own" : "", matrix[i][j]);
    rows += fmt::format("<tr><th scope=\"row\">{}</th>{}</tr>\n", i, cells);
  }
  return heading +
         table("Confusion matrix of the last validation: a row for each true class, a column for each predicted one",
               head, rows);
}

}  // namespace

std::string curves_section(const Runs& runs) {
  const Curves curves(runs);
  std::string html = curves.html();
  if (html.empty()) {
    const bool off =
        std::any_of(runs.begin(), runs.end(), [](const RunRecord& run) { return run.setting("log.jsonl") == "false"; });
    const bool over = std::all_of(runs.begin(), runs.end(), [](const RunRecord& run) { return run.complete(); });
    const char* why = off ? ": log.jsonl = false writes no metrics.jsonl" : (over ? "" : " yet");
    return section("curves", "Curves", fmt::format("<p>No step is on record{}.</p>\n", why));
  }
  html = fmt::format("<div class=\"charts\">\n{}</div>\n", html);
  const bool marked = runs.size() == 1 && html.find("class=\"event\"") != std::string::npos;
  if (marked)
    html += "<p class=\"note\">P: a new plan; M: a rank ran out of memory; R: a later start goes on from here.</p>\n";
  html += curves.other_numbers();
  for (std::size_t i = 0; i < runs.size(); ++i) html += confusion(runs[i], heading_of(runs, i));
  return section("curves", "Curves", html);
}

}  // namespace onebatch::launch::report
