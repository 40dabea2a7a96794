#include "trainer/models/checked_files.hpp"

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace onebatch {
namespace {

struct Moment {
  std::int64_t seconds = 0;
  std::int64_t nanoseconds = 0;
  bool operator==(const Moment&) const = default;
};

struct Identity {
  dev_t device = 0;
  ino_t number = 0;
  off_t bytes = 0;
  Moment written;
  Moment changed;  // cannot be set
  bool operator==(const Identity&) const = default;
};

std::optional<Identity> identity_of(const std::string& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0) return std::nullopt;
  return Identity{status.st_dev, status.st_ino, status.st_size, Moment{status.st_mtim.tv_sec, status.st_mtim.tv_nsec},
                  Moment{status.st_ctim.tv_sec, status.st_ctim.tv_nsec}};
}

}  // namespace

void check_once(const std::string& file, const std::function<void()>& check) {
  static std::mutex mutex;
  static std::map<std::string, Identity> checked;
  const std::lock_guard lock(mutex);
  const std::optional<Identity> identity = identity_of(file);
  const auto before = checked.find(file);
  if (identity && before != checked.end() && before->second == *identity) return;
  checked.erase(file);
  check();
  if (identity) checked.emplace(file, *identity);
}

}  // namespace onebatch
