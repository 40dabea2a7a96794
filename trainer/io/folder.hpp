// What lies in a folder, with the folder's name in whatever goes wrong: the standard iterators leave it out of what
// they throw as they go on.
#pragma once

#include <filesystem>
#include <functional>
#include <system_error>
#include <vector>

namespace onebatch {

using TakeEntry = std::function<void(const std::filesystem::directory_entry&)>;

/// Gives all that lies in `folder`, in no order, up to what goes wrong.
std::error_code for_each_entry(const std::filesystem::path& folder, const TakeEntry& take);

/// All that lies in `folder`, by its name's bytes. Throws std::filesystem::filesystem_error with its path.
std::vector<std::filesystem::directory_entry> entries_of(const std::filesystem::path& folder);

/// Gives all files in `folder` and below it, links followed, in no order. Throws as entries_of.
void for_each_file_below(const std::filesystem::path& folder, const TakeEntry& take);

/// Throws UserError where a conversion (python/onebatch/converting.py) was stopped that wrote to `folder`.
void refuse_half_converted(const std::filesystem::path& folder);

}  // namespace onebatch
