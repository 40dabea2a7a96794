// What happened, and how to do it again.
#include "launch/report/html.hpp"
#include "launch/report/sections.hpp"
#include "launch/shell_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace onebatch::launch::report {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t k_most_rows = 200;

// As they stand in the page. Kinds that this version does not know keep their names.
std::string name_of(const std::string& kind) {
  if (kind == "out_of_memory") return "out of memory";
  if (kind == "replanned") return "new plan";
  if (kind == "run") return "start";
  if (kind == "training_begins") return "training";
  if (kind == "ended") return "end";
  return kind;
}

// Checkpoints in a row are one line.
struct Line {
  const RunEvent* first;
  const RunEvent* last;
  std::size_t count;
};

std::vector<Line> lines_of(const std::vector<RunEvent>& events) {
  std::vector<Line> lines;
  for (const RunEvent& event : events) {
    const bool again = !lines.empty() && lines.back().last->kind == event.kind &&
                       (event.kind == "checkpoint" || lines.back().last->text == event.text);
    if (again) {
      lines.back().last = &event;
      ++lines.back().count;
    } else {
      lines.push_back({&event, &event, 1});
    }
  }
  return lines;
}

std::string row(const Line& line) {
  const RunEvent& event = *line.first;
  std::string text = markup_text(event.text);
  if (line.count > 1 && event.text == line.last->text) text += fmt::format(" ({} times)", line.count);
  if (line.count > 1 && event.text != line.last->text)
    text = fmt::format("{} of them, {} to {}", line.count, text, markup_text(line.last->text));
  return fmt::format(
      "<tr class=\"{}\"><td>{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"text\">{}</td></tr>\n",
      event.kind == "failed" || event.kind == "incident"
          ? "bad"
          : (event.kind == "warning" || event.kind == "fallback" || event.kind == "out_of_memory" ? "warned" : ""),
      event.time ? time_text(*event.time) : "&#8211;", event.step ? count_text(*event.step) : "&#8211;",
      markup_text(name_of(event.kind)), text);
}

std::string events_of(const RunRecord& run) {
  const auto lines = lines_of(run.events);
  if (lines.empty()) return {};
  std::string rows;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool shown = lines.size() <= k_most_rows || i < k_most_rows / 2 || i >= lines.size() - k_most_rows / 2;
    if (shown) rows += row(lines[i]);
    if (!shown && i == k_most_rows / 2)
      rows += fmt::format("<tr><td colspan=\"4\">{} lines more, which events.jsonl has</td></tr>\n",
                          lines.size() - k_most_rows);
  }
  return table("What happened, in the order in which it did; the step is the last one done then",
               head_cell("time (UTC)") + head_cell("step") + head_cell("what") + head_cell("in words"), rows);
}

// A checkpoint that this run went on from; of another run's a repetition begins as well.
bool is_in_the_run(const RunRecord& run, const fs::path& checkpoint) {
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(run.folder, error);
  const fs::path inside = fs::weakly_canonical(checkpoint, error).lexically_relative(folder);
  return !inside.empty() && *inside.begin() != "..";
}

// With every key as it was, whatever the file that it was started from says by now.
std::string command_of(const RunRecord& run) {
  const std::int64_t ranks =
      !run.starts.empty() ? run.starts.back().ranks : static_cast<std::int64_t>(run.metrics.ranks.size());
  std::string command = ranks > 1 ? fmt::format("onebatch launch -np {} train ", ranks) : "onebatch train ";
  command += quoted_for_shell((run.folder / "config.toml").string());
  const std::string resume = run.setting("checkpoint.resume");
  if (resume == "auto" || (!resume.empty() && is_in_the_run(run, resume))) command += " --set checkpoint.resume=never";
  return command;
}

std::string repeat_of(const RunRecord& run) {
  if (run.configuration.empty()) return {};
  std::string html = fmt::format("<p>The same once more, in a folder of its own:</p>\n<pre><code>{}</code></pre>\n",
                                 markup_text(command_of(run)));
  html += fmt::format("<p>To follow the same plan instead of measuring again, add <code>--plan {}</code>.</p>\n",
                      markup_text(quoted_for_shell((run.folder / "plan.json").string())));
  if (run.starts.empty()) return html;
  const Start& start = run.starts.back();
  return html + fmt::format("<p>It was started{} with</p>\n<pre><code>{}</code></pre>\n",
                            run.starts.size() > 1 ? " last" : "", markup_text(start.command));
}

}  // namespace

std::string events_section(const Runs& runs) {
  std::string html;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string events = events_of(runs[i]);
    if (!events.empty()) html += heading_of(runs, i) + events;
  }
  return html.empty() ? "" : section("events", "Events", html);
}

std::string repeat_section(const Runs& runs) {
  std::string html;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string repeat = repeat_of(runs[i]);
    if (!repeat.empty()) html += heading_of(runs, i) + repeat;
  }
  return html.empty() ? "" : section("repeat", "The command that repeats it", html);
}

}  // namespace onebatch::launch::report
