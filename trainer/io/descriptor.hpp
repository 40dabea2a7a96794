// Files that are held open by their descriptors, where locks or pipes are wanted.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

namespace onebatch {

/// Closes it; a negative one is none.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

/// Whether the file that was opened is still the one of that name.
inline bool is_still(const std::filesystem::path& file, int descriptor) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(descriptor, &opened) == 0 && ::stat(file.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace onebatch
