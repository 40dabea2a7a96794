#include "trainer/io/folder.hpp"

#include "trainer/base/error.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

void check(const std::error_code& error, const fs::path& folder) {
  if (error) throw fs::filesystem_error("cannot read the folder", folder, error);
}

}  // namespace

std::error_code for_each_entry(const fs::path& folder, const TakeEntry& take) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator(); at.increment(error))
    take(*at);
  return error;
}

std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  check(for_each_entry(folder, [&](const fs::directory_entry& entry) { entries.push_back(entry); }), folder);
  std::ranges::sort(entries, {},
                    [](const fs::directory_entry& entry) -> const std::string& { return entry.path().native(); });
  return entries;
}

void for_each_file_below(const fs::path& folder, const TakeEntry& take) {
  std::vector<fs::path> folders = {folder};
  while (!folders.empty()) {
    const fs::path next = std::move(folders.back());
    folders.pop_back();
    const auto sort_out = [&](const fs::directory_entry& entry) {
      if (entry.is_directory())
        folders.push_back(entry.path());
      else
        take(entry);
    };
    check(for_each_entry(next, sort_out), next);
  }
}

void refuse_half_converted(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / ".convert-plan.json", ignored) && !fs::exists(folder / "convert.json", ignored))
    throw UserError(folder.string() +
                    " holds a part of what was to be converted: the same convert command goes on with it");
}

}  // namespace onebatch
