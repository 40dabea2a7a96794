#include "launch/report/read_events.hpp"
#include "launch/report/read_metrics.hpp"
#include "trainer/base/error.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/io/durable_file.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sstream>

namespace onebatch::launch::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view k_value = " = ";
constexpr std::string_view k_origin = "   # ";
constexpr std::string_view k_not_set = " is not set";

// Lines as resolved_config() writes them.
std::vector<ConfigEntry> read_configuration(const std::string& text) {
  std::vector<ConfigEntry> entries;
  std::string section;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find(k_value);
    if (line.starts_with('[') && line.ends_with(']')) {
      section = line.substr(1, line.size() - 2) + ".";
    } else if (line.starts_with("# ") && line.ends_with(k_not_set)) {
      entries.push_back({section + line.substr(2, line.size() - 2 - k_not_set.size()), "not set", "default"});
    } else if (!line.starts_with('#') && equals != std::string::npos) {
      const std::size_t begin = equals + k_value.size();
      const std::size_t end = std::min(line.rfind(k_origin), line.size());
      const bool told = end >= begin && end < line.size();
      entries.push_back({section + line.substr(0, equals), line.substr(begin, told ? end - begin : line.npos),
                         told ? line.substr(end + k_origin.size()) : ""});
    }
  }
  return entries;
}

// A TOML string's text; its value as it is written, where it is none.
std::string unquoted(const std::string& value) {
  if (value.size() < 2 || !value.starts_with('"') || !value.ends_with('"')) return value;
  const Json json = Json::parse(value, nullptr, /*allow_exceptions=*/false);
  return json.is_string() ? json.get<std::string>() : value.substr(1, value.size() - 2);
}

void add_numbers(const Json& json, const std::string& prefix, std::map<std::string, double>& numbers) {
  for (const auto& [key, value] : json.items()) {
    if (value.is_number()) numbers[prefix + key] = value.get<double>();
    if (value.is_boolean()) numbers[prefix + key] = value.get<bool>() ? 1.0 : 0.0;
    if (value.is_object() && prefix.empty()) add_numbers(value, key + ".", numbers);
  }
}

std::map<std::string, double> read_result(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw UserError("is no result document");
  std::map<std::string, double> numbers;
  add_numbers(json, "", numbers);
  return numbers;
}

// Files that are not there are none of a run's yet; what cannot be read is said, and the rest is drawn all the same.
template <typename Read>
void read_if_there(RunRecord& run, const char* name, Read read) {
  const fs::path file = run.folder / name;
  std::error_code error;
  if (!fs::exists(file, error)) return;
  try {
    read(file);
  } catch (const std::exception& problem) {
    run.unread.push_back(fmt::format("{}: {}", name, problem.what()));
  }
}

// Of ranks those of the last start that has made a step.
Metrics metrics_of(const fs::path& file, const std::vector<Start>& starts) {
  for (auto start = starts.rbegin(); start != starts.rend() && start->first_step > 0; ++start) {
    Metrics metrics = read_metrics(file, start->first_step);
    if (!metrics.ranks.empty()) return metrics;
  }
  return read_metrics(file, 0);
}

}  // namespace

std::string RunRecord::setting(const std::string& key) const {
  for (const ConfigEntry& entry : configuration) {
    if (entry.key == key && entry.value != "not set") return unquoted(entry.value);
  }
  return {};
}

RunRecord read_run(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw UserError(fmt::format("{} is no folder: write that of a run, as in runs/demo", folder.string()));
  if (!fs::exists(folder / "config.toml", error) && !fs::exists(folder / "profile.json", error))
    throw UserError(fmt::format("{} is not a run's folder: it has no config.toml", folder.string()));
  RunRecord run;
  run.folder = folder;
  read_if_there(run, "config.toml",
                [&](const fs::path& file) { run.configuration = read_configuration(read_text(file)); });
  read_if_there(run, "profile.json",
                [&](const fs::path& file) { run.profile = parse_profile(read_text(file), file.filename().string()); });
  read_if_there(run, "plan.json",
                [&](const fs::path& file) { run.plan = parse_epoch_plan(read_text(file), file.filename().string()); });
  read_if_there(run, "result.json", [&](const fs::path& file) { run.result = read_result(read_text(file)); });
  read_if_there(run, "events.jsonl", [&](const fs::path& file) { read_event_lines(file, run); });
  read_if_there(run, "metrics.jsonl", [&](const fs::path& file) { run.metrics = metrics_of(file, run.starts); });
  read_if_there(run, "validation.jsonl",
                [&](const fs::path& file) { run.validations = read_validations(file, run.metrics); });
  read_if_there(run, ".", [&](const fs::path&) { read_events(folder, run); });
  run.name = run.setting("run.name");
  if (run.name.empty()) run.name = fs::absolute(folder).lexically_normal().filename().string();
  if (run.name.empty()) run.name = fs::absolute(folder).lexically_normal().parent_path().filename().string();
  return run;
}

}  // namespace onebatch::launch::report
