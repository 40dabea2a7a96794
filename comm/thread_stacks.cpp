#include "comm/thread_stacks.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace onebatch::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view k_thread = "thread ";
constexpr std::string_view k_frame = "  ";

std::string read_until(int from, Clock::time_point deadline) {
  std::string text;
  std::array<char, 4096> part{};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{from, POLLIN, 0};
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) return text;
    const ssize_t got = read(from, part.data(), part.size());
    if (got <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
}

// Beside this program, else on the path.
std::string reader() {
  std::error_code error;
  const auto beside = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "onebatch-stacks";
  return std::filesystem::exists(beside, error) ? beside.string() : beside.filename().string();
}

std::vector<ThreadStack> without(const std::string& why) {
  return {{0, "", {"no stacks: " + why}}};
}

}  // namespace

std::string to_text(const std::vector<ThreadStack>& stacks) {
  std::string text;
  for (const ThreadStack& stack : stacks) {
    text += fmt::format("{}{} ({})\n", k_thread, stack.id, stack.name);
    for (const std::string& frame : stack.frames) text += std::string(k_frame) + frame + "\n";
  }
  return text;
}

std::vector<ThreadStack> parse_thread_stacks(std::string_view text) {
  std::vector<ThreadStack> stacks;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    if (line.starts_with(k_thread)) {
      const std::string rest(line.substr(k_thread.size()));
      const std::size_t name = rest.find(" (");
      stacks.push_back({std::atol(rest.c_str()),
                        name == std::string::npos ? "" : rest.substr(name + 2, rest.size() - name - 3),
                        {}});
    } else if (line.starts_with(k_frame) && !stacks.empty()) {
      stacks.back().frames.emplace_back(line.substr(k_frame.size()));
    }
  }
  return stacks;
}

std::vector<ThreadStack> ask_for_thread_stacks(pid_t process, double seconds) {
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return without(std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string program = reader();
  std::string number = std::to_string(process);
  std::array<char*, 3> arguments = {program.data(), number.data(), nullptr};
  pid_t helper = 0;
  allow_to_be_looked_into();
  const int failed = posix_spawnp(&helper, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed != 0) {
    close(ends[0]);
    return without(program + ": " + std::strerror(failed));
  }
  auto stacks = parse_thread_stacks(read_until(ends[0], deadline));
  close(ends[0]);
  kill(helper, SIGKILL);
  waitpid(helper, nullptr, 0);
  return stacks.empty() ? without("what was to read them did not answer in time") : stacks;
}

void allow_to_be_looked_into() {
#ifdef PR_SET_PTRACER
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
#endif
}

}  // namespace onebatch::comm
