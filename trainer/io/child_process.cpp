#include "trainer/io/child_process.hpp"

#include "trainer/io/descriptor.hpp"
#include "trainer/io/spawn_settings.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

namespace onebatch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int k_between_looks = 50;                       // milliseconds
constexpr std::chrono::milliseconds k_to_clear_up{5000};  // once it was told to end

[[noreturn]] void fail(const std::string& what, int error) {
  throw std::system_error(error, std::generic_category(), what);
}

struct Pipe {
  Pipe() : Pipe(ends_of_a_pipe()) {}
  explicit Pipe(const std::array<int, 2>& ends) : reads(ends[0]), writes(ends[1]) {}

  static std::array<int, 2> ends_of_a_pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("cannot make a pipe", errno);
    return ends;
  }

  Descriptor reads;
  Descriptor writes;
};

void shut(Descriptor& descriptor) {
  if (const int value = descriptor.release(); value >= 0) ::close(value);
}

class Running {
 public:
  explicit Running(const ChildRequest& request) : request_(request) {
    SpawnSettings settings;
    settings.pass(input_.reads.get(), STDIN_FILENO);
    settings.pass(output_.writes.get(), STDOUT_FILENO);
    settings.pass(errors_.writes.get(), STDERR_FILENO);
    settings.lead_group();
    std::vector<char*> environment = environment_of_one();
    std::erase_if(environment, [&](const std::string_view entry) {
      return request.environment.contains(std::string(entry.substr(0, entry.find('='))));
    });
    std::vector<std::string> changes;
    for (const auto& [name, value] : request.environment) changes.push_back(fmt::format("{}={}", name, value));
    for (std::string& change : changes) environment.push_back(change.data());
    environment.push_back(nullptr);
    const int error = settings.spawn(process_, request.words, environment.data());
    if (error != 0) fail("cannot start " + request.words.front(), error);
    shut(input_.reads);
    shut(output_.writes);
    shut(errors_.writes);
  }
  ~Running() {
    if (ended_) return;
    ::kill(-process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  ChildResult wait() {
    ChildResult result;
    auto deadline = Clock::now() + request_.patience;
    while (!has_ended()) {
      pass_on(k_between_looks);
      if (result.end == ChildEnd::by_itself && request_.stop())
        result.end = ChildEnd::stopped;
      else if (result.end == ChildEnd::by_itself && Clock::now() >= deadline)
        result.end = ChildEnd::too_late;
      if (result.end == ChildEnd::by_itself) continue;
      if (input_.writes.get() >= 0) deadline = Clock::now() + k_to_clear_up;
      shut(input_.writes);
      if (Clock::now() >= deadline) ::kill(-process_, SIGKILL);
    }
    while (pass_on(0)) {
    }
    if (WIFSIGNALED(status_))
      result.signal = WTERMSIG(status_);
    else
      result.code = WEXITSTATUS(status_);
    return result;
  }

 private:
  bool has_ended() {
    ended_ = ::waitpid(process_, &status_, WNOHANG) == process_;
    return ended_;
  }

  // Whether there was something.
  bool pass_on(int milliseconds) {
    std::array<pollfd, 2> waiting{{{output_.reads.get(), POLLIN, 0}, {errors_.reads.get(), POLLIN, 0}}};
    if (::poll(waiting.data(), waiting.size(), milliseconds) <= 0) return false;
    const bool some = waiting[0].revents != 0 && read(output_.reads, request_.out);
    return (waiting[1].revents != 0 && read(errors_.reads, request_.error)) || some;
  }

  static bool read(Descriptor& from, const std::function<void(std::string_view)>& told) {
    std::array<char, 4096> bytes;
    const ssize_t count = ::read(from.get(), bytes.data(), bytes.size());
    if (count > 0) told({bytes.data(), static_cast<std::size_t>(count)});
    if (count == 0) shut(from);
    return count > 0;
  }

  const ChildRequest& request_;
  Pipe input_;
  Pipe output_;
  Pipe errors_;
  pid_t process_ = 0;
  int status_ = 0;
  bool ended_ = false;
};

}  // namespace

ChildResult run_child(const ChildRequest& request) {
  return Running(request).wait();
}

}  // namespace onebatch
