// The folder that LibTorch unpacks native code to, in /tmp, and removes when it lets the code go: whoever is killed
// would leave it there.
#pragma once

#include <filesystem>
#include <set>

namespace onebatch {

/// Folders right below `parent` that LibTorch has unpacked code to which this process has loaded.
std::set<std::filesystem::path> folders_of_code(const std::filesystem::path& parent = "/tmp");

/// Removes those that are there now and were not `before`, where nothing more is read: what is loaded stays loaded.
void remove_new_folders_of_code(const std::set<std::filesystem::path>& before,
                                const std::filesystem::path& parent = "/tmp");

}  // namespace onebatch
