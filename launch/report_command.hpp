// `onebatch report`, and the report that a run leaves.
#pragma once

#include "launch/command_line.hpp"

#include <filesystem>

namespace onebatch::launch {

/// Draws the runs and says where; returns its document. Throws UserError.
std::string report_runs(const Arguments& arguments);

/// A run that was asked to stop has little time: it leaves no report where that would take long.
enum class LeaveReport { always, where_quick };

/// report.html in the folder of a run that has ended; a failure is said and no more.
void leave_report(const std::filesystem::path& run_dir, LeaveReport when);

}  // namespace onebatch::launch
