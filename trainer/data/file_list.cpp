#include "trainer/data/file_list.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/pipe_command.hpp"
#include "trainer/io/folder.hpp"

#include <glob.h>

#include <algorithm>
#include <set>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> of_folder(const fs::path& folder, const std::string& extension) {
  std::vector<fs::path> files;
  try {
    for (const fs::path& file : entries_of(folder)) {
      if (!file.filename().string().starts_with('.') && file.extension() == extension) files.push_back(file);
    }
  } catch (const fs::filesystem_error& error) {
    throw UserError("cannot read the folder " + folder.string() + ": " + error.code().message());
  }
  if (files.empty()) throw UserError("the folder " + folder.string() + " holds no file that ends in " + extension);
  return files;
}

struct Matches {
  Matches() = default;
  ~Matches() { ::globfree(&found); }
  Matches(const Matches&) = delete;
  Matches& operator=(const Matches&) = delete;
  glob_t found = {};
};

std::vector<fs::path> of_pattern(const std::string& pattern) {
  Matches matches;
  const int code = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &matches.found);
  if (code != 0 && code != GLOB_NOMATCH) throw UserError("cannot look for " + pattern + ": a folder cannot be read");
  std::vector<fs::path> files(matches.found.gl_pathv, matches.found.gl_pathv + matches.found.gl_pathc);
  if (files.empty()) throw UserError("there is no file " + pattern);
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> named(const std::string& name, const std::string& extension) {
  if (is_pipe(name)) return {name};
  std::error_code ignored;
  if (fs::is_directory(name, ignored)) return of_folder(name, extension);
  const bool pattern = name.find_first_of("*?[") != std::string::npos;
  return pattern && !fs::exists(name, ignored) ? of_pattern(name) : std::vector<fs::path>{name};
}

}  // namespace

std::vector<fs::path> files_of(const DatasetConfiguration& data, const std::string& extension) {
  std::vector<fs::path> files;
  if (data.files.empty()) files = named(data.path, extension);
  for (const std::string& name : data.files) {
    const auto some = named(is_pipe(name) ? name : (fs::path(data.path) / name).string(), extension);
    files.insert(files.end(), some.begin(), some.end());
  }
  std::set<fs::path> seen;
  std::set<fs::path> folders;
  for (const fs::path& file : files) {
    if (!is_pipe(file.string()) && folders.insert(file.parent_path()).second) refuse_half_converted(file.parent_path());
    if (is_pipe(file.string()) && extension != ".tar")
      throw UserError(file.string() + ": what a command gives is read as shards alone, by data.kind = \"tar\"");
    if (!seen.insert(file.lexically_normal()).second)
      throw UserError("data.files names " + file.string() + " twice: its samples would be counted twice");
  }
  return files;
}

Between between_reads(std::size_t files) {
  constexpr std::size_t k_most_open = 128;  // of the 1024 descriptors that a process has as a rule
  return files <= k_most_open ? Between::open : Between::closed;
}

}  // namespace onebatch
