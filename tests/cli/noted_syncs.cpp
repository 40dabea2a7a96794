// The program, which notes in the file ONEBATCH_TEST_SYNCS, a line each, what it syncs and what it renames, in order;
// on a disk that alters the last byte of files whose path ends in ONEBATCH_TEST_FLIP.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace {

void note(const std::string& line) {
  const char* file = std::getenv("ONEBATCH_TEST_SYNCS");
  if (file == nullptr) return;
  const int descriptor = ::open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  [[maybe_unused]] const ssize_t written = ::write(descriptor, line.data(), line.size());
  ::close(descriptor);
}

std::string path_of(int descriptor) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t size = ::readlink(link.c_str(), path.data(), path.size());
  return {path.data(), size < 0 ? 0 : static_cast<std::size_t>(size)};
}

void flip_last_byte(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  const off_t last = ::lseek(descriptor, 0, SEEK_END) - 1;
  char byte = 0;
  [[maybe_unused]] const ssize_t read = ::pread(descriptor, &byte, 1, last);
  byte = static_cast<char>(byte ^ 1);
  [[maybe_unused]] const ssize_t written = ::pwrite(descriptor, &byte, 1, last);
  ::close(descriptor);
}

}  // namespace

// In the place of the C library's.
extern "C" int fsync(int descriptor) {
  note("sync\t" + path_of(descriptor) + "\n");
  const int result = static_cast<int>(::syscall(SYS_fsync, descriptor));
  const char* end = std::getenv("ONEBATCH_TEST_FLIP");
  if (end != nullptr && path_of(descriptor).ends_with(end)) flip_last_byte(path_of(descriptor));
  return result;
}

extern "C" int rename(const char* from, const char* to) noexcept {
  note(std::string("rename\t") + from + "\t" + to + "\n");
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
