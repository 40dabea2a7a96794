#include "trainer/data/spool.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/pipe_command.hpp"
#include "trainer/io/checksum.hpp"
#include "trainer/io/descriptor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <span>
#include <system_error>
#include <utility>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// false: another has it, where that is no reason to wait.
bool lock(int descriptor, int how) {
  while (::flock(descriptor, how) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) fail("flock");
  }
  return true;
}

// Only one process at a time makes, takes or removes the file beside it.
class Turn {
 public:
  explicit Turn(const fs::path& file) : file_(file.string() + ".lock") {
    for (;;) {
      descriptor_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      if (descriptor_ < 0) fail("cannot write " + file_.string());
      lock(descriptor_, LOCK_EX);
      if (is_still(file_, descriptor_)) return;
      ::close(descriptor_);  // removed while it was waited for
    }
  }
  ~Turn() { ::close(descriptor_); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void remove() const { ::unlink(file_.c_str()); }

 private:
  fs::path file_;
  int descriptor_ = -1;
};

// Nobody else may write there.
void make_own_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) fail("cannot make " + folder.string());
  struct stat found {};
  if (::lstat(folder.c_str(), &found) != 0) fail("cannot read " + folder.string());
  if (!S_ISDIR(found.st_mode) || found.st_uid != ::geteuid() || (found.st_mode & 022) != 0)
    throw UserError(folder.string() +
                    " is not a folder that this user alone may write to: remove it, or set TMPDIR to another place");
}

// Of a variable's, as the shell has it.
bool is_of_a_name(char letter) {
  return letter == '_' || (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= 'a' && letter <= 'z');
}

}  // namespace

// By all that a command gives other bytes for: it runs in this folder, and may read what the environment has.
fs::path Spool::place_of(const std::string& name) {
  std::string key = name + '\0' + fs::current_path().string();
  for (std::size_t at = name.find('$'); at != std::string::npos; at = name.find('$', at + 1)) {
    const std::size_t begin = name.find_first_not_of('{', at + 1);
    if (begin == std::string::npos) break;
    const auto first = name.begin() + static_cast<std::ptrdiff_t>(begin);
    const char* value = std::getenv(std::string(first, std::find_if_not(first, name.end(), is_of_a_name)).c_str());
    key += '\0' + std::string(value != nullptr ? value : "");
  }
  return fs::temp_directory_path() / fmt::format("onebatch-spool-{}", ::geteuid()) /
         (to_text(checksum_of_bytes(std::as_bytes(std::span(key)))) + ".tar");
}

Spool::Spool(std::string name, std::uint64_t most_bytes) : name_(std::move(name)), path_(place_of(name_)) {
  make_own_folder(path_.parent_path());
  const Turn turn(path_);
  try {
    if (!share()) fill(most_bytes);
  } catch (...) {
    if (descriptor_ >= 0) ::close(descriptor_);
    turn.remove();
    throw;
  }
}

Spool::~Spool() {
  try {
    const Turn turn(path_);
    const bool last = lock(descriptor_, LOCK_EX | LOCK_NB);
    if (last) ::unlink(path_.c_str());
    if (last) turn.remove();
  } catch (const std::exception&) {
    // The folder is gone, and the file with it.
  }
  ::close(descriptor_);
}

// Takes what is there and in use; what nobody uses was left behind.
bool Spool::share() {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) return false;
  if (lock(descriptor_, LOCK_EX | LOCK_NB)) {
    ::unlink(path_.c_str());
    ::close(std::exchange(descriptor_, -1));
    return false;
  }
  lock(descriptor_, LOCK_SH);
  bytes_ = fs::file_size(path_);
  return true;
}

void Spool::fill(std::uint64_t most_bytes) {
  const fs::path partial = path_.string() + ".partial";
  try {
    bytes_ = read_pipe(name_, partial, most_bytes);
    descriptor_ = ::open(partial.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail("cannot read " + partial.string());
    lock(descriptor_, LOCK_SH);
    fs::rename(partial, path_);
  } catch (...) {
    ::unlink(partial.c_str());
    throw;
  }
}

}  // namespace onebatch
