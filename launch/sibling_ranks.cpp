#include "launch/sibling_ranks.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace onebatch::launch {
namespace {

constexpr long k_pause_nanoseconds = 3'000'000;

bool read_text(const char* path, char* text, std::size_t size) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t length = read(file, text, size - 1);
  close(file);
  if (length <= 0) return false;
  text[length] = '\0';
  return true;
}

// Of a line of /proc/PID/status, as "PPid:\t12": 12, or 0.
unsigned long long field(const char* status, const char* name, int base) {
  const char* found = std::strstr(status, name);
  return found == nullptr ? 0 : std::strtoull(found + std::strlen(name), nullptr, base);
}

// The launcher itself hears SIGUSR1, and so does its copy that is about to become a rank: the program tells them apart.
bool is_listening_sibling(const char* pid, const char* own_program) {
  char path[64];
  char status[4096];
  char program[1024];
  std::snprintf(path, sizeof(path), "/proc/%.20s/status", pid);
  if (!read_text(path, status, sizeof(status))) return false;
  if (field(status, "\nPPid:", 10) != static_cast<unsigned long long>(getppid())) return false;
  if ((field(status, "\nSigCgt:", 16) >> (SIGUSR1 - 1) & 1) == 0) return false;
  std::snprintf(path, sizeof(path), "/proc/%.20s/exe", pid);
  const ssize_t length = readlink(path, program, sizeof(program) - 1);
  if (length <= 0) return false;
  program[length] = '\0';
  return std::strcmp(program, own_program) == 0;
}

int count_listening(const char* own_program) {
  DIR* processes = opendir("/proc");
  if (processes == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = readdir(processes)) {
    if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
      count += is_listening_sibling(entry->d_name, own_program) ? 1 : 0;
  }
  closedir(processes);
  return count;
}

}  // namespace

void wait_until_siblings_listen(int local_ranks, int longest_milliseconds) {
  char own_program[1024];
  const ssize_t length = readlink("/proc/self/exe", own_program, sizeof(own_program) - 1);
  if (length <= 0) return;
  own_program[length] = '\0';
  timespec begin{};
  clock_gettime(CLOCK_MONOTONIC, &begin);
  while (count_listening(own_program) < local_ranks) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1'000'000 > longest_milliseconds) return;
    const timespec pause{0, k_pause_nanoseconds};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace onebatch::launch
