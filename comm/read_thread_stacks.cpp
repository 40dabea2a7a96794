#include "comm/thread_stacks.hpp"

#include <fmt/format.h>

#include <cxxabi.h>
#include <libunwind-ptrace.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

namespace onebatch::comm {
namespace {

namespace fs = std::filesystem;

constexpr int k_most_frames = 100;
constexpr std::size_t k_longest_name = 512;

std::string first_line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 ? text.get() : name;
}

// Arguments make a frame of LibTorch's longer than a screen.
std::string shortened(std::string name) {
  constexpr std::size_t k_most = 160;
  if (name.size() > k_most) name = name.substr(0, k_most) + "...";
  return name;
}

// The file that holds the address, for functions without a name.
std::string file_at(pid_t process, unw_word_t address) {
  std::ifstream maps(fmt::format("/proc/{}/maps", process));
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0;
    unsigned long long end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx", &begin, &end) != 2 || address < begin || address >= end) continue;
    const auto path = line.find('/');
    return path == std::string::npos ? "" : " in " + fs::path(line.substr(path)).filename().string();
  }
  return {};
}

std::string frame_at(pid_t process, unw_cursor_t& cursor) {
  unw_word_t address = 0;
  unw_get_reg(&cursor, UNW_REG_IP, &address);
  std::array<char, k_longest_name> name{};
  unw_word_t offset = 0;
  const int found = unw_get_proc_name(&cursor, name.data(), name.size(), &offset);
  std::array<char, 32> at{};
  if (found == 0 || found == -UNW_ENOMEM) {  // ENOMEM: cut
    std::snprintf(at.data(), at.size(), "+0x%llx", static_cast<unsigned long long>(offset));
    return shortened(demangled(name.data())) + at.data();
  }
  std::snprintf(at.data(), at.size(), "0x%llx", static_cast<unsigned long long>(address));
  return at.data() + file_at(process, address);
}

void unwind(pid_t process, long thread, std::vector<std::string>& frames) {
  const std::unique_ptr<std::remove_pointer_t<unw_addr_space_t>, decltype(&unw_destroy_addr_space)> space(
      unw_create_addr_space(&_UPT_accessors, 0), &unw_destroy_addr_space);
  const std::unique_ptr<void, decltype(&_UPT_destroy)> of_thread(_UPT_create(static_cast<pid_t>(thread)),
                                                                 &_UPT_destroy);
  unw_cursor_t cursor;
  if (unw_init_remote(&cursor, space.get(), of_thread.get()) != 0)
    return frames.emplace_back("(its registers cannot be read)"), void();
  do {
    frames.push_back(frame_at(process, cursor));
  } while (static_cast<int>(frames.size()) < k_most_frames && unw_step(&cursor) > 0);
}

// A seized thread is interrupted without a signal of its own, and one that was stopped is found so again.
class Stopped {
 public:
  explicit Stopped(long thread) : thread_(static_cast<pid_t>(thread)) {
    if (ptrace(PTRACE_SEIZE, thread_, nullptr, nullptr) != 0) {
      error_ = std::string("ptrace: ") + std::strerror(errno) +
               (errno == EPERM ? " (a container or system that forbids it)" : "");
      return;
    }
    seized_ = true;
    int status = 0;
    if (ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr) != 0 || waitpid(thread_, &status, __WALL) != thread_)
      error_ = std::string("it does not stop: ") + std::strerror(errno);
  }
  ~Stopped() {
    if (seized_) ptrace(PTRACE_DETACH, thread_, nullptr, nullptr);
  }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  pid_t thread_;
  bool seized_ = false;
  std::string error_;
};

}  // namespace

std::vector<ThreadStack> read_thread_stacks(pid_t process) {
  const fs::path folder = fmt::format("/proc/{}", process);
  std::vector<long> threads;
  for (const auto& entry : fs::directory_iterator(folder / "task"))
    threads.push_back(std::stol(entry.path().filename().string()));
  std::ranges::sort(threads);
  std::vector<ThreadStack> stacks;
  for (const long thread : threads) {
    ThreadStack stack{thread, first_line_of(folder / "task" / std::to_string(thread) / "comm"), {}};
    const Stopped stopped(thread);
    if (stopped.error().empty())
      unwind(process, thread, stack.frames);
    else
      stack.frames.push_back("(" + stopped.error() + ")");
    stacks.push_back(std::move(stack));
  }
  return stacks;
}

}  // namespace onebatch::comm
