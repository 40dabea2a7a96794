#include "launch/launched_ranks.hpp"

#include "trainer/io/durable_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* k_stop = "stop";

}  // namespace

LaunchFolder::LaunchFolder() {
  std::string name = (fs::temp_directory_path() / "onebatch-launch-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr)
    throw std::system_error(errno, std::generic_category(), "cannot make the folder " + name);
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
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) count += entry.path().filename() != k_stop ? 1 : 0;
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
