// Files that a command is asked to write.
#pragma once

#include "launch/command_line.hpp"

#include <filesystem>
#include <string>

namespace onebatch::launch {

/// Tries it: throws UserError, which begins with the option, where no file can be written there, before there is any
/// work for it. Leaves nothing behind.
void check_can_be_written(const std::string& option, const std::filesystem::path& file);

/// The same of all files that the arguments of a command on several ranks name; rank 0 writes them.
void check_written_files(const Arguments& arguments);

}  // namespace onebatch::launch
