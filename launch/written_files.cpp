#include "launch/written_files.hpp"

#include "trainer/base/error.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace onebatch::launch {

namespace fs = std::filesystem;

namespace {

// As the file itself will be, beside it and under another name: a folder may refuse, a disk be full.
void try_to_write(const std::string& said, const fs::path& folder) {
  std::string name = (folder / ".onebatch-XXXXXX").string();
  const int file = ::mkstemp(name.data());
  int error = file < 0 ? errno : 0;
  if (file >= 0) {
    const std::string page(4096, ' ');
    const ssize_t written = ::write(file, page.data(), page.size());
    if (written != static_cast<ssize_t>(page.size())) error = written < 0 ? errno : ENOSPC;
    ::close(file);
    ::unlink(name.c_str());
  }
  if (error != 0) throw UserError(fmt::format("{}: {}: name a place that can be written", said, std::strerror(error)));
}

}  // namespace

void check_can_be_written(const std::string& option, const fs::path& file) {
  const std::string said = fmt::format("{} {}", option, file.string());
  std::error_code error;
  if (file.filename().empty() || fs::is_directory(file, error))
    throw UserError(fmt::format("{} is a folder: write the name of a file in it", said));
  const fs::path folder = file.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error))
    throw UserError(fmt::format("{}: there is no folder {}: make it first", said, folder.string()));
  try_to_write(said, folder.empty() ? fs::path(".") : folder);
}

void check_written_files(const Arguments& arguments) {
  const auto check = [](const char* option, const std::string& file) {
    if (!file.empty()) check_can_be_written(option, file);
  };
  check("--json", arguments.json_file);
  check("--timeline", arguments.timeline_file);
  check("--html", arguments.html_file);
  check("--save-gradient", arguments.gradient_file);
}

}  // namespace onebatch::launch
