#include "launch/launched_ranks.hpp"

#include "trainer/base/error.hpp"
#include "trainer/io/folder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* k_stop = "stop";

[[noreturn]] void refuse_the_place(const std::error_code& error) {
  const char* named = std::getenv("TMPDIR");
  throw UserError("no folder for temporary files: TMPDIR" +
                  (named == nullptr ? " is not set" : "=" + std::string(named)) + ": " + error.message() +
                  ": write export TMPDIR=/tmp, or another folder that is there and can be written");
}

}  // namespace

LaunchFolder::LaunchFolder() {
  std::error_code error;
  std::string name = (fs::temp_directory_path(error) / "onebatch-launch-XXXXXX").string();
  if (error) refuse_the_place(error);
  if (mkdtemp(name.data()) == nullptr) refuse_the_place({errno, std::generic_category()});
  path_ = name;
}

LaunchFolder::~LaunchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void LaunchFolder::ask_to_stop() const {
  const int file = open((path_ + "/" + k_stop).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (file >= 0) close(file);
}

int LaunchFolder::listening() const {
  int count = 0;
  static_cast<void>(for_each_entry(
      path_, [&](const fs::directory_entry& entry) { count += entry.path().filename() != k_stop ? 1 : 0; }));
  return count;
}

bool tell_launcher(const char* folder) {
  if (folder == nullptr) return false;
  char name[512];
  const auto named = [&](const char* format, int number) {
    const int length = std::snprintf(name, sizeof(name), format, folder, number);
    return length > 0 && static_cast<std::size_t>(length) < sizeof(name);
  };
  if (named("%s/rank-%d", getpid())) {
    const int file = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (file >= 0) close(file);
  }
  return named("%s/stop", 0) && access(name, F_OK) == 0;
}

}  // namespace onebatch::launch
