// Files that a command is asked to write.
#pragma once

#include <filesystem>
#include <string>

namespace onebatch::launch {

/// Throws UserError, which begins with the option, where no file can be written there: before there is any work for it.
void check_can_be_written(const std::string& option, const std::filesystem::path& file);

}  // namespace onebatch::launch
