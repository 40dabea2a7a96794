// --log-dir: a file for each rank with all that it said, when.
#pragma once

#include <filesystem>
#include <string_view>

namespace onebatch::launch {

/// Opens DIR/rank-N.log (N: the launcher's number) and puts into it from here on what this process says to people, each
/// line after the time (UTC), and what libraries write to standard output and error themselves. A file of that name is
/// added to. `command` is what was typed. Throws UserError naming the file where it cannot be written.
void begin_log(const std::filesystem::path& folder, std::string_view command);

/// The last line, written once: how this process ended, and after how long.
void end_log(int exit_code);

}  // namespace onebatch::launch
