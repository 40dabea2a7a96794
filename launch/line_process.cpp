#include "launch/line_process.hpp"

#include "trainer/io/spawn_settings.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds k_between_looks{200};
constexpr milliseconds k_after_sigterm{1000};

std::string end_text(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("has ended with code {}", WEXITSTATUS(status));
}

}  // namespace

LineProcess::LineProcess(LineProcessOptions options) : options_(std::move(options)) {
  start();
  thread_ = std::thread([this] { feed(); });
}

LineProcess::~LineProcess() {
  close(milliseconds(0));
}

void LineProcess::start() {
  const auto fail = [&](const std::string& what, int error) {
    throw std::system_error(error, std::generic_category(), what);
  };
  const int output = ::open(options_.output.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (output < 0) fail("cannot write " + options_.output.string(), errno);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("cannot make a pipe", errno);
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  auto environment = environment_of_one();
  environment.push_back(nullptr);
  SpawnSettings settings;
  settings.pass(ends[0], STDIN_FILENO);
  settings.pass(output, STDOUT_FILENO);
  settings.pass(output, STDERR_FILENO);
  settings.lead_group();
  const int error = settings.spawn(child_, options_.command, environment.data());
  ::close(ends[0]);
  ::close(output);
  input_ = ends[1];
  if (error == 0) return;
  ::close(input_);
  fail("cannot start " + options_.command.front(), error);
}

void LineProcess::write(std::string line, Line kind) {
  {
    const std::scoped_lock lock(mutex_);
    if (ended_ || closing_) return;
    const std::size_t most = options_.most_lines * (kind == Line::kept ? 4 : 1);
    if (lines_.size() >= most) {
      if (dropped_++ == 0)
        notes_.push_back(fmt::format("{} is slower than the run: it is not told of every step", options_.name));
      return;
    }
    line += '\n';
    lines_.push_back(std::move(line));
  }
  changed_.notify_one();
}

void LineProcess::feed() {
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);  // of a reader that has gone: an error is enough
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait_for(lock, k_between_looks, [this] { return !lines_.empty() || closing_; });
    if (lines_.empty() && closing_) break;
    std::string text;
    for (; !lines_.empty() && text.size() < std::size_t{1} << 16; lines_.pop_front()) text += lines_.front();
    lock.unlock();
    const bool reads = text.empty() || pass_on(text);
    if (!reads || text.empty()) note_if_ended();
    lock.lock();
    if (ended_ || !reads) break;
  }
  lines_.clear();
  lock.unlock();
  ::close(input_);
  wait_for_end();
}

bool LineProcess::pass_on(const std::string& text) {
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t written = ::write(input_, left.data(), left.size());
    if (written > 0) {
      left.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      if (is_too_late()) return false;
      pollfd room = {input_, POLLOUT, 0};
      ::poll(&room, 1, static_cast<int>(k_between_looks.count()));
    } else if (errno != EINTR) {
      return false;  // it reads no longer
    }
  }
  return true;
}

bool LineProcess::is_too_late() {
  const std::scoped_lock lock(mutex_);
  return closing_ && Clock::now() >= deadline_;
}

void LineProcess::say(std::string note) {
  const std::scoped_lock lock(mutex_);
  notes_.push_back(std::move(note));
}

void LineProcess::note_if_ended() {
  int status = 0;
  if (ended_ || ::waitpid(child_, &status, WNOHANG) != child_) return;
  const std::scoped_lock lock(mutex_);
  ended_ = true;
  if (closing_ && WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  notes_.push_back(fmt::format("{} {}{}; what it said is in {}", options_.name, end_text(status),
                               closing_ ? "" : ": training goes on without it", options_.output.string()));
}

// Its input has come to an end, or it reads no longer: then it may take its time until the run ends.
void LineProcess::wait_for_end() {
  for (int looks = 0;; ++looks) {
    note_if_ended();
    std::unique_lock lock(mutex_);
    if (ended_) return;
    if (!closing_ && looks == 1)  // else it is just ending
      notes_.push_back(fmt::format("{} reads no longer: training goes on without it", options_.name));
    changed_.wait_for(lock, closing_ ? milliseconds(20) : k_between_looks);
    if (closing_ && Clock::now() >= deadline_) break;
  }
  end();
}

void LineProcess::end() {
  say(fmt::format("{} has not ended in time and is ended; what it said is in {}", options_.name,
                  options_.output.string()));
  ::kill(-child_, SIGTERM);
  const auto until = Clock::now() + k_after_sigterm;
  int status = 0;
  while (Clock::now() < until) {
    if (::waitpid(child_, &status, WNOHANG) == child_) return;
    std::this_thread::sleep_for(milliseconds(20));
  }
  ::kill(-child_, SIGKILL);
  ::waitpid(child_, &status, 0);
}

void LineProcess::close(milliseconds patience) {
  {
    const std::scoped_lock lock(mutex_);
    if (!closing_) deadline_ = Clock::now() + patience;
    closing_ = true;
  }
  changed_.notify_one();
  if (!thread_.joinable()) return;
  thread_.join();
  if (dropped_ > 0) say(fmt::format("{} was not told of {} events", options_.name, dropped_));
}

std::vector<std::string> LineProcess::take_notes() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(notes_, {});
}

bool is_program(const std::string& word) {
  const auto runs = [](const fs::path& file) {
    std::error_code error;
    return fs::is_regular_file(file, error) && ::access(file.c_str(), X_OK) == 0;
  };
  if (word.find('/') != std::string::npos) return runs(word);
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (runs(fs::path(folder.empty() ? "." : folder) / word)) return true;
  }
  return false;
}

}  // namespace onebatch::launch
