#include "launch/doctor/tried_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds k_between_looks{20};
constexpr std::chrono::seconds k_to_clear_up{2};

struct Pipe {
  Pipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
      throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(std::size_t end) {
    if (ends[end] >= 0) close(ends[end]);
    ends[end] = -1;
  }
  std::array<int, 2> ends{-1, -1};
};

[[noreturn]] void become(const std::vector<std::string>& words, int output) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) std::signal(number, SIG_DFL);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execv(pointers.front(), pointers.data());
  std::_Exit(127);
}

// False at its end.
bool read_some(int descriptor, std::string& output) {
  pollfd waiting{descriptor, POLLIN, 0};
  if (poll(&waiting, 1, static_cast<int>(k_between_looks.count())) <= 0) return true;
  std::array<char, 4096> bytes;
  const ssize_t count = read(descriptor, bytes.data(), bytes.size());
  if (count > 0) output.append(bytes.data(), static_cast<std::size_t>(count));
  return count > 0;
}

int code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TriedProgram try_program(const std::vector<std::string>& words, double seconds) {
  Pipe pipe;
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "cannot start " + words.front());
  if (child == 0) become(words, pipe.ends[1]);
  setpgid(child, child);
  pipe.close_end(1);
  TriedProgram tried;
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  bool open = true;
  int status = 0;
  bool ended = false;
  while (!ended) {
    if (open)
      open = read_some(pipe.ends[0], tried.output);
    else
      usleep(static_cast<useconds_t>(std::chrono::microseconds(k_between_looks).count()));
    ended = waitpid(child, &status, WNOHANG) == child;
    if (ended || Clock::now() < deadline + (tried.too_late ? k_to_clear_up : std::chrono::seconds(0))) continue;
    kill(-child, tried.too_late ? SIGKILL : SIGTERM);  // mpirun ends its ranks, and removes what it has made
    tried.too_late = true;
  }
  while (open && poll(nullptr, 0, 0) == 0) {
    const std::size_t before = tried.output.size();
    open = read_some(pipe.ends[0], tried.output);
    if (tried.output.size() == before) break;
  }
  tried.code = code_of(status);
  return tried;
}

std::vector<std::string> all_in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string_view left = path == nullptr ? "" : path;
  std::vector<std::string> found;
  std::error_code none;
  while (!left.empty()) {
    const std::size_t end = std::min(left.find(':'), left.size());
    const fs::path file = fs::path(left.substr(0, end)) / name;
    const bool is_program = fs::is_regular_file(file, none) && access(file.c_str(), X_OK) == 0;
    if (is_program && std::ranges::find(found, file.string()) == found.end()) found.push_back(file.string());
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return found;
}

}  // namespace onebatch::launch
