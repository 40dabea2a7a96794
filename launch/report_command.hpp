// `onebatch report`, and the report that a run leaves.
#pragma once

#include "launch/command_line.hpp"

#include <filesystem>

namespace onebatch::launch {

/// Draws the runs and says where; returns its document. Throws UserError.
std::string report_runs(const Arguments& arguments);

/// report.html in the folder of a run that has ended; a failure is said and no more. A run that was asked to stop, and
/// has little time, leaves none where that would take long.
void leave_report(const std::filesystem::path& run_dir, bool in_a_hurry);

}  // namespace onebatch::launch
