#include "launch/report/read_events.hpp"

#include "trainer/io/durable_file.hpp"
#include "trainer/io/folder.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <sstream>

namespace onebatch::launch::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string text(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || found->is_null()) return {};
  return found->is_string() ? found->get<std::string>() : found->dump(-1, ' ', false, Json::error_handler_t::replace);
}

double number(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : 0.0;
}

std::int64_t whole(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

bool is_true(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_boolean() && found->get<bool>();
}

// A kind that this version does not know.
std::string other_fields(const Json& line) {
  std::string fields;
  for (const auto& [key, value] : line.items()) {
    if (key == "time" || key == "event" || key == "number" || key == "step") continue;
    fields += fmt::format("{}{}: {}", fields.empty() ? "" : ", ", key, text(line, key.c_str()));
  }
  return fields;
}

std::string run_words(const Json& line, RunRecord& run) {
  Start start{.command = text(line, "command"),
              .version = text(line, "onebatch"),
              .host = text(line, "host"),
              .ranks = whole(line, "ranks"),
              .first_step = run.starts.empty() ? 0 : run.starts.back().first_step};
  const std::string words = fmt::format("{}, {} rank{}", start.command, start.ranks, start.ranks == 1 ? "" : "s");
  run.starts.push_back(std::move(start));
  return words;
}

// From here on steps are predicted to take what the line says.
void add_span(const Json& line, std::int64_t after_step, RunRecord& run) {
  const double predicted = number(line, "predicted_step_seconds");
  if (predicted > 0.0) run.spans.push_back({after_step, predicted});
}

// Empty: nothing that the page lists.
std::string words_of(const std::string& kind, const Json& line, RunRecord& run) {
  if (kind == "run") return run_words(line, run);
  if (kind == "training_begins") {
    const std::int64_t first = whole(line, "first_step");
    // One that has nothing to do leaves the steps to the start before.
    if (!run.starts.empty() && first < whole(line, "last_step")) run.starts.back().first_step = first;
    // A start may go on from a step before the last one that was done: what was planned for later is void.
    std::erase_if(run.spans, [&](const PlanSpan& span) { return span.after_step >= first; });
    add_span(line, first, run);
    return first == 0 ? fmt::format("training begins, to step {}", whole(line, "last_step"))
                      : fmt::format("goes on after step {}, to step {}", first, whole(line, "last_step"));
  }
  if (kind == "validation") return {};  // drawn as a curve
  if (kind == "warning" || kind == "info") return text(line, "line");
  if (kind == "fallback") {
    const std::string asked = text(line, "asked");
    return asked.empty() ? text(line, "done") : fmt::format("asked for {}; did {}", asked, text(line, "done"));
  }
  if (kind == "checkpoint") return fmt::format("of step {}", whole(line, "step"));
  if (kind == "replanned") {
    add_span(line, whole(line, "step"), run);
    const bool memory = text(line, "cause") == "out_of_memory";
    return fmt::format("a new plan, since {}",
                       memory ? "a rank ran out of memory" : "a device has become faster or slower");
  }
  if (kind == "out_of_memory")
    return fmt::format("rank {} ran out of memory in a micro-batch of {} samples", whole(line, "rank"),
                       whole(line, "micro_batch_size"));
  if (kind == "ended") {
    if (is_true(line, "stopped_by_signal")) return "stopped by a signal, saved";
    return is_true(line, "stopped_early") ? "stopped early: validation got no better" : "training has come to its end";
  }
  if (kind == "failed") return fmt::format("exit code {}: {}", whole(line, "code"), text(line, "reason"));
  return other_fields(line);
}

void read_event(const Json& line, RunRecord& run) {
  const std::string kind = text(line, "event");
  RunEvent event{.kind = kind, .text = words_of(kind, line, run)};
  if (number(line, "time") > 0.0) event.time = number(line, "time");
  const char* step = kind == "training_begins" ? "first_step" : "step";
  if (line.contains(step)) event.step = whole(line, step);
  if (!event.text.empty()) run.events.push_back(std::move(event));
}

// "20260228T093000.123Z", whole seconds of it.
std::optional<double> moment_of(const std::string& text) {
  std::tm parts{};
  if (::strptime(text.c_str(), "%Y%m%dT%H%M%S", &parts) == nullptr) return std::nullopt;
  return static_cast<double>(::timegm(&parts));
}

// Each where it belongs among the other events.
void read_incidents(const fs::path& folder, RunRecord& run) {
  std::vector<fs::path> files;
  for (const auto& entry : entries_of(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("incident-") && name.ends_with(".json")) files.push_back(entry.path());
  }
  for (const fs::path& file : files) {
    const Json json = Json::parse(read_text(file), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) continue;
    RunEvent incident{.time = moment_of(text(json, "time")),
                      .kind = "incident",
                      .step = {},
                      .text = fmt::format("{} of rank {}: {} ({})", text(json, "kind"), whole(json, "rank"),
                                          text(json, "reason"), file.filename().string())};
    const auto is_later = [&](const RunEvent& one) { return incident.time && one.time && *one.time > *incident.time; };
    run.events.insert(std::ranges::find_if(run.events, is_later), std::move(incident));
  }
}

std::optional<std::int64_t> step_of_folder(const std::string& name) {
  constexpr std::string_view k_prefix = "step-";
  if (!name.starts_with(k_prefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + k_prefix.size(), end, step);
  return read.ec == std::errc() && read.ptr == end ? std::optional(step) : std::nullopt;
}

void read_checkpoints(const fs::path& folder, RunRecord& run) {
  std::vector<std::int64_t> steps;
  static_cast<void>(for_each_entry(folder, [&](const fs::directory_entry& entry) {
    if (const auto step = step_of_folder(entry.path().filename().string())) steps.push_back(*step);
  }));
  std::sort(steps.begin(), steps.end());
  for (const std::int64_t step : steps)
    run.events.push_back({.time = {}, .kind = "checkpoint", .step = step, .text = fmt::format("of step {}", step)});
}

void read_plan_changes(RunRecord& run) {
  const StepColumns& columns = run.metrics.columns;
  for (std::size_t i = 1; i < columns.plan.size(); ++i) {
    if (columns.plan[i] == columns.plan[i - 1]) continue;
    const auto step = static_cast<std::int64_t>(columns.step[i - 1]);
    run.events.push_back({.time = {}, .kind = "replanned", .step = step, .text = "a new plan"});
  }
}

void add_skipped(RunRecord& run) {
  const auto& steps = run.metrics.skipped_steps;
  if (steps.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < std::min<std::size_t>(steps.size(), 20); ++i)
    list += fmt::format("{}{}", i > 0 ? ", " : "", steps[i]);
  if (steps.size() > 20) list += fmt::format(" and {} more", steps.size() - 20);
  run.events.push_back(
      {.time = {},
       .kind = "skipped",
       .step = steps.front(),
       .text = fmt::format("nothing was updated in {} step{}: {}", steps.size(), steps.size() == 1 ? "" : "s", list)});
}

}  // namespace

void read_event_lines(const fs::path& file, RunRecord& run) {
  std::istringstream lines(read_text(file));
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object()) read_event(json, run);
  }
}

void read_events(const fs::path& folder, RunRecord& run) {
  if (run.starts.empty()) {  // of a version that wrote no such file
    read_plan_changes(run);
    read_checkpoints(folder / "checkpoints", run);
  }
  if (run.plan && run.spans.empty()) {
    // Of a version whose events did not say it: the last plan's steps are those that are known to have had it.
    const auto& columns = run.metrics.columns;
    std::size_t i = columns.plan.size();
    while (i > 0 && columns.plan[i - 1] == columns.plan.back()) --i;
    const std::int64_t before = i > 0 ? static_cast<std::int64_t>(columns.step[i - 1]) : 0;
    const std::int64_t goes_on_after = run.starts.empty() ? 0 : run.starts.back().first_step;
    run.spans.push_back({std::max(before, goes_on_after), run.plan->full.predicted_step_seconds});
  }
  add_skipped(run);
  read_incidents(folder, run);
}

}  // namespace onebatch::launch::report
