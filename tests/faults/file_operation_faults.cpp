// Preloaded into the program: counts what it does with files below given folders, and lets one of those operations go
// wrong.
//
// FILE_FAULT_FOLDERS="/a:/b"   what is watched; nothing else is counted
// FILE_FAULT_ONLY="text"       of those, only what has the text in its path
// FILE_FAULT_RANK="0"          of which rank
// FILE_FAULT_LOG="/file"       a line for each operation: number, seconds, name, path; it lies outside of the folders
// FILE_FAULT="17 ENOSPC"       what happens to the 17th: kill, EIO, ENOSPC, EINTR,
//                              short (half is read or written, and that is returned),
//                              torn (half is written, then kill).
//                              Before the operation, but for close, which is done and then fails.
// FILE_FAULT_REQUEST="text"    SIGQUIT at the first operation on a path with the text, and time for what it asks for
#include "tests/faults/file_operation_faults.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <span>
#include <string>
#include <type_traits>

namespace {

constexpr int k_most_descriptors = 4096;
constexpr int k_request_milliseconds = 2500;

struct Settings {
  pid_t process = 0;  // a child that closes its descriptors before it becomes another program is not meant
  std::string folders;
  std::string only;
  std::string request;
  long strike_at = 0;
  std::string kind;
  int log = -1;
};

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

Settings read_settings() {
  Settings settings;
  const std::string rank = variable("OMPI_COMM_WORLD_RANK");
  const std::string wanted = variable("FILE_FAULT_RANK");
  settings.folders = variable("FILE_FAULT_FOLDERS");
  // The launcher and the program's helpers have the variables, too.
  const bool is_program = std::strstr(program_invocation_short_name, "onebatch") != nullptr &&
                          std::strcmp(program_invocation_short_name, "onebatch-stacks") != 0;
  const bool is_meant =
      is_program && !settings.folders.empty() && (rank.empty() ? "0" : rank) == (wanted.empty() ? "0" : wanted);
  if (!is_meant) return settings;
  settings.process = getpid();
  settings.only = variable("FILE_FAULT_ONLY");
  settings.request = variable("FILE_FAULT_REQUEST");
  const std::string fault = variable("FILE_FAULT");
  settings.strike_at = std::atol(fault.c_str());
  settings.kind = fault.substr(std::min(fault.size(), fault.find(' ') + 1));
  const std::string log = variable("FILE_FAULT_LOG");
  if (!log.empty())
    settings.log =
        static_cast<int>(syscall(SYS_openat, AT_FDCWD, log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  return settings;
}

Settings& settings() {
  static Settings read = read_settings();
  return read;
}

std::atomic<long> counted{0};
std::atomic<bool> requested{false};

// Its path; never freed, a reader may have it.
std::array<std::atomic<const std::string*>, k_most_descriptors> watched_descriptors{};

template <typename Function>
Function next(Function, const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}
#define NEXT(name)                                     \
  ([] {                                                \
    static const auto libc_one = next(&::name, #name); \
    return libc_one;                                   \
  }())

bool is_below(const std::string& path) {
  const std::string& folders = settings().folders;
  for (std::size_t begin = 0; begin < folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string_view folder(folders.data() + begin, end - begin);
    if (path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/')) return true;
    begin = end + 1;
  }
  return false;
}

std::string path_of(int descriptor) {
  if (descriptor < 0 || descriptor >= k_most_descriptors) return {};
  const std::string* path = watched_descriptors[static_cast<std::size_t>(descriptor)].load();
  return path == nullptr ? std::string() : *path;
}

std::string path_at(int folder, const char* name) {
  if (settings().process == 0 || name == nullptr) return {};
  if (name[0] == '/') return name;
  if (folder != AT_FDCWD)
    return path_of(folder).empty() ? std::string() : path_of(folder) + (name[0] == '\0' ? "" : "/") + name;
  std::array<char, PATH_MAX> here{};
  return syscall(SYS_getcwd, here.data(), here.size()) > 0 ? std::string(here.data()) + "/" + name : std::string();
}

void remember(int descriptor, const std::string& path) {
  if (descriptor >= 0 && descriptor < k_most_descriptors && is_below(path))
    watched_descriptors[static_cast<std::size_t>(descriptor)] = new std::string(path);
}

void forget(int descriptor) {
  if (descriptor >= 0 && descriptor < k_most_descriptors)
    watched_descriptors[static_cast<std::size_t>(descriptor)] = nullptr;
}

[[noreturn]] void die() {
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) pause();
}

// The first time: what SIGQUIT asks for is written by another thread, to the same folder.
void request(const std::string& path) {
  if (settings().request.empty() || path.find(settings().request) == std::string::npos || requested.exchange(true))
    return;
  raise(SIGQUIT);
  usleep(k_request_milliseconds * 1000);
}

// What is to happen to this operation; empty: nothing.
std::string verdict(const char* name, const std::string& path) {
  if (settings().process != getpid() || path.empty() || !is_below(path)) return {};
  request(path);
  if (path.find(settings().only) == std::string::npos) return {};
  const long number = ++counted;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const double seconds = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  const std::string line = std::to_string(number) + " " + std::to_string(seconds) + " " + name + " " + path + "\n";
  if (settings().log >= 0) syscall(SYS_write, settings().log, line.data(), line.size());
  if (number != settings().strike_at) return {};
  if (settings().kind == "kill") die();
  return settings().kind;
}

int error_of(const std::string& kind) {
  if (kind == "EIO") return EIO;
  if (kind == "ENOSPC") return ENOSPC;
  if (kind == "EINTR") return EINTR;
  return 0;
}

// Of those that return a number below 0, or a null pointer, and set errno.
template <typename Call>
auto perhaps(const char* name, const std::string& path, Call call) -> decltype(call()) {
  using Result = decltype(call());
  if (const int error = error_of(verdict(name, path)); error != 0) {
    errno = error;
    if constexpr (std::is_pointer_v<Result>) {
      return nullptr;
    } else {
      return -1;
    }
  }
  return call();
}

// `call` takes the number of bytes.
template <typename Call>
ssize_t perhaps_half(const char* name, int descriptor, std::size_t bytes, Call call) {
  const std::string kind = verdict(name, path_of(descriptor));
  if (const int error = error_of(kind); error != 0) {
    errno = error;
    return -1;
  }
  const bool half = (kind == "short" || kind == "torn") && bytes > 1;
  const ssize_t result = call(half ? bytes / 2 : bytes);
  if (kind == "torn") die();
  return result;
}

template <typename Call>
int perhaps_opened(const char* name, const std::string& path, Call call) {
  const int descriptor = perhaps(name, path, call);
  remember(descriptor, path);
  return descriptor;
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

std::size_t total(std::span<const iovec> parts) {
  std::size_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  return bytes;
}

}  // namespace

void watch_file_operations_anew() {
  settings() = read_settings();
  counted = 0;
  requested = false;
}

extern "C" {

#define DEFINE_OPEN(open_name)                                                                                \
  int open_name(const char* path, int flags, ...) {                                                           \
    va_list arguments;                                                                                        \
    va_start(arguments, flags);                                                                               \
    const mode_t mode = mode_of(flags, arguments);                                                            \
    va_end(arguments);                                                                                        \
    const char* name = (flags & O_CREAT) != 0 ? "create" : "open";                                            \
    return perhaps_opened(name, path_at(AT_FDCWD, path), [&] { return NEXT(open_name)(path, flags, mode); }); \
  }
#define DEFINE_OPENAT(open_name)                                                                                    \
  int open_name(int folder, const char* path, int flags, ...) {                                                     \
    va_list arguments;                                                                                              \
    va_start(arguments, flags);                                                                                     \
    const mode_t mode = mode_of(flags, arguments);                                                                  \
    va_end(arguments);                                                                                              \
    const char* name = (flags & O_CREAT) != 0 ? "create" : "open";                                                  \
    return perhaps_opened(name, path_at(folder, path), [&] { return NEXT(open_name)(folder, path, flags, mode); }); \
  }
#define DEFINE_FOPEN(open_name)                                                                                   \
  FILE* open_name(const char* path, const char* mode) {                                                           \
    const std::string place = path_at(AT_FDCWD, path);                                                            \
    FILE* file = perhaps(mode[0] == 'r' ? "open" : "create", place, [&] { return NEXT(open_name)(path, mode); }); \
    if (file != nullptr) remember(fileno(file), place);                                                           \
    return file;                                                                                                  \
  }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)
DEFINE_FOPEN(fopen)
DEFINE_FOPEN(fopen64)

int creat(const char* path, mode_t mode) {
  return perhaps_opened("create", path_at(AT_FDCWD, path), [&] { return NEXT(creat)(path, mode); });
}
DIR* opendir(const char* path) {
  return perhaps("opendir", path_at(AT_FDCWD, path), [&] { return NEXT(opendir)(path); });
}
DIR* fdopendir(int descriptor) {
  return perhaps("opendir", path_of(descriptor), [&] { return NEXT(fdopendir)(descriptor); });
}
int closedir(DIR* folder) {
  forget(dirfd(folder));
  return NEXT(closedir)(folder);
}
dirent* readdir(DIR* folder) {
  return perhaps("readdir", path_of(dirfd(folder)), [&] { return NEXT(readdir)(folder); });
}

int close(int descriptor) {
  const std::string kind = verdict("close", path_of(descriptor));
  forget(descriptor);
  const int result = NEXT(close)(descriptor);
  if (error_of(kind) == 0) return result;
  errno = error_of(kind);
  return -1;
}
int fclose(FILE* file) {
  const std::string kind = verdict("close", path_of(fileno(file)));
  forget(fileno(file));
  const int result = NEXT(fclose)(file);
  if (error_of(kind) == 0) return result;
  errno = error_of(kind);
  return EOF;
}

ssize_t read(int descriptor, void* bytes, size_t count) {
  return perhaps_half("read", descriptor, count, [&](size_t some) { return NEXT(read)(descriptor, bytes, some); });
}
ssize_t pread(int descriptor, void* bytes, size_t count, off_t at) {
  return perhaps_half("read", descriptor, count, [&](size_t some) { return NEXT(pread)(descriptor, bytes, some, at); });
}
ssize_t pread64(int descriptor, void* bytes, size_t count, off64_t at) {
  return perhaps_half("read", descriptor, count,
                      [&](size_t some) { return NEXT(pread64)(descriptor, bytes, some, at); });
}
ssize_t write(int descriptor, const void* bytes, size_t count) {
  return perhaps_half("write", descriptor, count, [&](size_t some) { return NEXT(write)(descriptor, bytes, some); });
}
ssize_t pwrite(int descriptor, const void* bytes, size_t count, off_t at) {
  return perhaps_half("write", descriptor, count,
                      [&](size_t some) { return NEXT(pwrite)(descriptor, bytes, some, at); });
}
ssize_t pwrite64(int descriptor, const void* bytes, size_t count, off64_t at) {
  return perhaps_half("write", descriptor, count,
                      [&](size_t some) { return NEXT(pwrite64)(descriptor, bytes, some, at); });
}
ssize_t writev(int descriptor, const iovec* parts, int number) {
  const std::span<const iovec> all(parts, static_cast<std::size_t>(number));
  return perhaps_half("write", descriptor, total(all), [&](size_t some) {
    if (some == total(all)) return NEXT(writev)(descriptor, parts, number);
    std::string gathered;
    for (const iovec& part : all) gathered.append(static_cast<const char*>(part.iov_base), part.iov_len);
    return NEXT(write)(descriptor, gathered.data(), some);
  });
}
void* mmap(void* address, size_t bytes, int protection, int flags, int descriptor, off_t at) noexcept {
  const bool shared = (flags & MAP_SHARED) != 0 && (flags & MAP_ANONYMOUS) == 0;
  const int error = shared ? error_of(verdict("mmap", path_of(descriptor))) : 0;
  if (error == 0) return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, descriptor, at));
  errno = error;
  return MAP_FAILED;
}

int fsync(int descriptor) {
  return perhaps("fsync", path_of(descriptor), [&] { return NEXT(fsync)(descriptor); });
}
int fdatasync(int descriptor) {
  return perhaps("fsync", path_of(descriptor), [&] { return NEXT(fdatasync)(descriptor); });
}
int ftruncate(int descriptor, off_t bytes) noexcept {
  return perhaps("truncate", path_of(descriptor), [&] { return NEXT(ftruncate)(descriptor, bytes); });
}
int ftruncate64(int descriptor, off64_t bytes) noexcept {
  return perhaps("truncate", path_of(descriptor), [&] { return NEXT(ftruncate64)(descriptor, bytes); });
}
int truncate(const char* path, off_t bytes) noexcept {
  return perhaps("truncate", path_at(AT_FDCWD, path), [&] { return NEXT(truncate)(path, bytes); });
}

int rename(const char* from, const char* to) noexcept {
  return perhaps("rename", path_at(AT_FDCWD, from), [&] { return NEXT(rename)(from, to); });
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return perhaps("rename", path_at(from_folder, from),
                 [&] { return NEXT(renameat)(from_folder, from, to_folder, to); });
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return perhaps("rename", path_at(from_folder, from),
                 [&] { return NEXT(renameat2)(from_folder, from, to_folder, to, flags); });
}
int mkdir(const char* path, mode_t mode) noexcept {
  return perhaps("mkdir", path_at(AT_FDCWD, path), [&] { return NEXT(mkdir)(path, mode); });
}
int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  return perhaps("mkdir", path_at(folder, path), [&] { return NEXT(mkdirat)(folder, path, mode); });
}
int unlink(const char* path) noexcept {
  return perhaps("remove", path_at(AT_FDCWD, path), [&] { return NEXT(unlink)(path); });
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  return perhaps("remove", path_at(folder, path), [&] { return NEXT(unlinkat)(folder, path, flags); });
}
int rmdir(const char* path) noexcept {
  return perhaps("remove", path_at(AT_FDCWD, path), [&] { return NEXT(rmdir)(path); });
}
int remove(const char* path) noexcept {
  return perhaps("remove", path_at(AT_FDCWD, path), [&] { return NEXT(remove)(path); });
}
int link(const char* from, const char* to) noexcept {
  return perhaps("link", path_at(AT_FDCWD, to), [&] { return NEXT(link)(from, to); });
}
int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  return perhaps("link", path_at(to_folder, to), [&] { return NEXT(linkat)(from_folder, from, to_folder, to, flags); });
}
int symlink(const char* from, const char* to) noexcept {
  return perhaps("link", path_at(AT_FDCWD, to), [&] { return NEXT(symlink)(from, to); });
}
int symlinkat(const char* from, int folder, const char* to) noexcept {
  return perhaps("link", path_at(folder, to), [&] { return NEXT(symlinkat)(from, folder, to); });
}

int stat(const char* path, struct stat* found) noexcept {
  return perhaps("stat", path_at(AT_FDCWD, path), [&] { return NEXT(stat)(path, found); });
}
int lstat(const char* path, struct stat* found) noexcept {
  return perhaps("stat", path_at(AT_FDCWD, path), [&] { return NEXT(lstat)(path, found); });
}
int fstat(int descriptor, struct stat* found) noexcept {
  return perhaps("stat", path_of(descriptor), [&] { return NEXT(fstat)(descriptor, found); });
}
// Of what was built with an older C library, LibTorch's wheel among it, whose std::filesystem the program may get.
int __xstat(int version, const char* path, struct stat* found) noexcept;
int __lxstat(int version, const char* path, struct stat* found) noexcept;
int __fxstat(int version, int descriptor, struct stat* found) noexcept;
int __xstat(int version, const char* path, struct stat* found) noexcept {
  return perhaps("stat", path_at(AT_FDCWD, path), [&] { return NEXT(__xstat)(version, path, found); });
}
int __lxstat(int version, const char* path, struct stat* found) noexcept {
  return perhaps("stat", path_at(AT_FDCWD, path), [&] { return NEXT(__lxstat)(version, path, found); });
}
int __fxstat(int version, int descriptor, struct stat* found) noexcept {
  return perhaps("stat", path_of(descriptor), [&] { return NEXT(__fxstat)(version, descriptor, found); });
}

}  // extern "C"
