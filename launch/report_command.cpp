#include "launch/report_command.hpp"

#include "launch/report/page.hpp"
#include "launch/report/sections.hpp"
#include "launch/run_lock.hpp"
#include "launch/standard_streams.hpp"
#include "launch/utc_time.hpp"
#include "launch/written_files.hpp"
#include "trainer/base/error.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/io/folder.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* k_report = "report.html";
constexpr std::uintmax_t k_read_in_a_second = std::uintmax_t{32} << 20;  // of metrics.jsonl

// Where somebody has named the folder that runs lie in.
std::string runs_in(const fs::path& folder) {
  std::vector<std::string> runs;
  static_cast<void>(for_each_entry(folder, [&](const fs::directory_entry& entry) {
    std::error_code ignored;
    if (fs::exists(entry.path() / "config.toml", ignored)) runs.push_back(entry.path().string());
  }));
  std::sort(runs.begin(), runs.end());
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(runs.size(), 5); ++i)
    text += (i > 0 ? ", " : "; runs in it: ") + runs[i];
  return text + (runs.size() > 5 ? ", …" : "");
}

report::RunRecord read(const std::string& folder) {
  try {
    report::RunRecord run = report::read_run(folder);
    run.held_by = holder_of(folder);
    return run;
  } catch (const UserError& error) {
    throw UserError(error.what() + runs_in(folder));
  }
}

fs::path file_of(const Arguments& arguments) {
  if (!arguments.target_file.empty()) return arguments.target_file;
  if (arguments.runs.size() > 1)
    throw UserError("report of several runs: write --out FILE.html, since they have no folder in common");
  return fs::path(arguments.runs.front()) / k_report;
}

}  // namespace

std::string report_runs(const Arguments& arguments) {
  const fs::path file = file_of(arguments);
  if (!arguments.target_file.empty()) check_can_be_written("--out", file, Output::text);
  std::vector<report::RunRecord> runs;
  Json listed = Json::array();
  for (const std::string& folder : arguments.runs) {
    runs.push_back(read(folder));
    listed.push_back({{"folder", folder}, {"name", runs.back().name}, {"state", report::state_text(runs.back())}});
  }
  const std::string page = report::report_page(runs, minute_now());
  write_output(file, page);
  if (!arguments.quiet) print_out(fmt::format("the report is in {}\n", file.string()));
  return Json({{"file", file.string()}, {"bytes", page.size()}, {"runs", listed}})
      .dump(2, ' ', false, Json::error_handler_t::replace);
}

void leave_report(const fs::path& run_dir, LeaveReport when) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(run_dir / "metrics.jsonl", error);
  if (when == LeaveReport::where_quick && !error && size > k_read_in_a_second) return;
  try {
    write_text_atomically(run_dir / k_report, report::report_page({report::read_run(run_dir)}, minute_now()));
  } catch (const std::exception& problem) {
    print_error(fmt::format("onebatch: warning: no report: {}\n", problem.what()));
  }
}

}  // namespace onebatch::launch
