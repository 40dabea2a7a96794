// What ran on what, and what came of it.
#include "launch/report/bins.hpp"
#include "launch/report/html.hpp"
#include "launch/report/sections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace onebatch::launch::report {
namespace {

using CellOf = std::function<std::string(const RunRecord&)>;

// A row, which is left out where no run has anything to say. Of several runs that differ, it says so.
std::string row(const std::string& name, const Runs& runs, const CellOf& cell_of) {
  std::string cells;
  std::vector<std::string> texts;
  for (const RunRecord& run : runs) {
    texts.push_back(cell_of(run));
    cells += cell(texts.back().empty() ? "&#8211;" : texts.back());
  }
  if (std::all_of(texts.begin(), texts.end(), [](const std::string& text) { return text.empty(); })) return {};
  const bool differ =
      std::any_of(texts.begin(), texts.end(), [&](const std::string& text) { return text != texts.front(); });
  return fmt::format("<tr{}><th scope=\"row\">{}{}</th>{}</tr>\n", differ ? " class=\"differs\"" : "",
                     markup_text(name), differ ? " <span title=\"the runs differ\">&#8800;</span>" : "", cells);
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0,
                         [](double a, double b) { return std::isfinite(b) ? a + b : a; });
}

std::string devices_text(const RunRecord& run) {
  std::vector<std::pair<std::string, std::int64_t>> kinds;
  const std::size_t count = std::max(run.metrics.ranks.size(), run.profile ? run.profile->ranks.size() : 0);
  for (std::size_t r = 0; r < count; ++r) {
    const std::string device = device_of(run, r);
    const auto same = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.first == device; });
    same == kinds.end() ? static_cast<void>(kinds.emplace_back(device, 1)) : static_cast<void>(++same->second);
  }
  std::string text;
  for (const auto& [device, number] : kinds)
    text += fmt::format("{}{} &#215; {}", text.empty() ? "" : "<br>", number,
                        device.empty() ? "a device that is not named" : markup_text(device));
  return text;
}

std::string hosts_text(const RunRecord& run) {
  std::vector<std::string> hosts;
  if (run.profile) {
    for (const RankProfile& rank : run.profile->ranks) hosts.push_back(rank.host);
  }
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  std::erase(hosts, "");
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(hosts.size(), 4); ++i) text += (i > 0 ? ", " : "") + hosts[i];
  if (hosts.size() > 4) text += fmt::format(" and {} more", hosts.size() - 4);
  return markup_text(text);
}

// A section of the configuration: its kind, and what else of it was set.
std::string chosen_text(const RunRecord& run, const std::string& section) {
  std::string text = run.setting(section + ".kind");
  for (const ConfigEntry& entry : run.configuration) {
    const std::size_t dot = entry.key.rfind('.');
    if (dot == std::string::npos || entry.key.substr(0, dot) != section || entry.origin == "default" ||
        entry.origin == "as data" || entry.key.ends_with(".kind") || entry.value == "not set")
      continue;
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", entry.key.substr(dot + 1), entry.value);
  }
  return markup_text(text);
}

std::string times_text(const RunRecord& run) {
  std::string first;
  std::string last;
  for (const RunEvent& event : run.events) {
    if (!event.time) continue;
    if (first.empty()) first = time_text(*event.time);
    last = time_text(*event.time);
  }
  return first.empty() ? "" : fmt::format("{} to {} UTC", first, last);
}

std::string build_text(const RunRecord& run) {
  if (run.starts.empty()) return {};
  const Start& start = run.starts.back();
  return markup_text(
      fmt::format("onebatch {}{}{}", start.version, start.host.empty() ? "" : ", started on ", start.host));
}

std::string result_count(const RunRecord& run, const char* name) {
  const auto found = run.result.find(name);
  return found == run.result.end() ? "" : exact(found->second, count_text(std::llround(found->second)));
}

std::string rate_text(const RunRecord& run) {
  const StepColumns& columns = run.metrics.columns;
  std::vector<double> samples;
  for (std::size_t i = 0; i < columns.step.size(); ++i)
    samples.push_back(columns.samples_per_second[i] * columns.step_seconds[i]);
  const double seconds = sum(columns.step_seconds);
  if (!(seconds > 0.0)) return {};
  const double rate = sum(samples) / seconds;
  return exact(rate, number_text(rate));
}

std::string rows_of_result(const Runs& runs) {
  const auto last = [](const std::vector<double>& column, std::string (*text)(double)) {
    return column.empty() ? "" : exact(column.back(), text(column.back()));
  };
  const auto step_quantile = [](double q) {
    return [q](const RunRecord& run) {
      const double seconds = quantile(run.metrics.columns.step_seconds, q);
      return seconds > 0.0 ? exact(seconds, seconds_text(seconds)) : "";
    };
  };
  std::string rows;
  rows += row("steps", runs, [&](const RunRecord& run) { return last(run.metrics.columns.step, number_text); });
  rows += row("samples", runs,
              [&](const RunRecord& run) { return last(run.metrics.columns.consumed_samples, number_text); });
  rows += row("training loss, last step", runs,
              [&](const RunRecord& run) { return last(run.metrics.columns.loss, number_text); });
  std::vector<std::string> names;
  for (const RunRecord& run : runs) {
    for (const ValidationColumn& column : run.validations.columns) {
      if (std::find(names.begin(), names.end(), column.name) == names.end() && names.size() < 12)
        names.push_back(column.name);
    }
  }
  for (const std::string& name : names) {
    rows += row(fmt::format("validation {}, last", name), runs, [&](const RunRecord& run) -> std::string {
      for (const ValidationColumn& column : run.validations.columns) {
        if (column.name == name) return last(column.value, number_text);
      }
      return {};
    });
  }
  rows += row("samples per second", runs, rate_text);
  rows += row("a step, median", runs, step_quantile(0.5));
  rows += row("95 % of the steps within", runs, step_quantile(0.95));
  rows += row("predicted for a step", runs, [](const RunRecord& run) {
    if (run.spans.empty()) return std::string();
    const double predicted = run.spans.back().predicted_step_seconds;
    return exact(predicted, seconds_text(predicted));
  });
  rows += row("time in steps", runs, [](const RunRecord& run) {
    const double seconds = sum(run.metrics.columns.step_seconds);
    return seconds > 0.0 ? exact(seconds, seconds_text(seconds)) : "";
  });
  rows += row("out of memory in a step, last start", runs,
              [](const RunRecord& run) { return result_count(run, "out_of_memory_events"); });
  rows += row("new plans, last start", runs, [](const RunRecord& run) { return result_count(run, "replans"); });
  return rows + row("replicas mended, last start", runs,
                    [](const RunRecord& run) { return result_count(run, "mended_replicas"); });
}

}  // namespace

std::string state_text(const RunRecord& run) {
  if (run.complete()) {
    const auto early = run.result.find("stopped_early");
    return early != run.result.end() && early->second != 0.0 ? "complete: stopped early" : "complete";
  }
  if (!run.held_by.empty()) return fmt::format("in progress: {}", run.held_by);
  for (auto event = run.events.rbegin(); event != run.events.rend(); ++event) {
    if (event->kind == "failed") return fmt::format("failed: {}", event->text);
    const bool was_asked = event->text.starts_with("request ");  // and went on
    if (event->kind == "ended" || (event->kind == "incident" && !was_asked)) return event->text;
    if (event->kind == "run") break;
  }
  return "not complete, and no process works on it";
}

std::string summary_section(const Runs& runs) {
  std::string head = "<td></td>";
  for (std::size_t i = 0; i < runs.size(); ++i)
    head += head_cell(runs.size() == 1 ? "" : fmt::format("{} {}", letter_of(i), markup_text(runs[i].name)));
  std::string rows;
  rows += row("state", runs, [](const RunRecord& run) { return markup_text(state_text(run)); });
  rows += row("from, to", runs, times_text);
  rows += row("devices", runs, devices_text);
  rows += row("hosts", runs, hosts_text);
  for (const char* part : {"model", "data", "batch", "optimizer", "schedule", "precision", "batch_norm"})
    rows += row(part, runs, [&](const RunRecord& run) { return chosen_text(run, part); });
  rows += rows_of_result(runs);
  rows += row("program", runs, build_text);
  rows += row("folder", runs, [](const RunRecord& run) { return markup_text(run.folder.string()); });
  std::string html = table("What ran on what, and what came of it", runs.size() == 1 ? "" : head, rows);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const std::string& problem : runs[i].unread)
      html += fmt::format("<p class=\"note\">{}cannot be read: {}</p>\n", runs.size() > 1 ? letter_of(i) + ": " : "",
                          markup_text(problem));
    const std::int64_t torn = runs[i].metrics.torn_lines + runs[i].validations.torn_lines;
    if (torn > 0)
      html += fmt::format(
          "<p class=\"note\">{}{} line{} of metrics.jsonl or validation.jsonl cannot be read and {} left out.</p>\n",
          runs.size() > 1 ? letter_of(i) + ": " : "", torn, torn == 1 ? "" : "s", torn == 1 ? "is" : "are");
  }
  return section("summary", "Summary", html);
}

}  // namespace onebatch::launch::report
