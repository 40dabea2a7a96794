// A folder that one process at a time adds to.
#pragma once

#include "trainer/io/descriptor.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>

namespace onebatch {

/// Locked for as long as it lives, where no other process has it. A file system without such locks refuses nobody.
class LockedFolder {
 public:
  explicit LockedFolder(const std::filesystem::path& folder)
      : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
        locked_(::flock(descriptor_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {}

  [[nodiscard]] bool locked() const { return locked_; }

 private:
  Descriptor descriptor_;
  bool locked_;
};

}  // namespace onebatch
