#include "trainer/data/pipe_command.hpp"

#include "trainer/base/error.hpp"
#include "trainer/io/descriptor.hpp"
#include "trainer/io/spawn_settings.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

namespace onebatch {
namespace {

constexpr std::string_view k_prefix = "pipe:";

class Splitter {
 public:
  explicit Splitter(const std::string& text) : text_(text) {}

  std::vector<std::string> words() {
    for (; at_ < text_.size(); ++at_) take(text_[at_]);
    end_word();
    return std::move(words_);
  }

 private:
  void take(char c) {
    if (c == ' ' || c == '\t' || c == '\n') return end_word();
    if (joins_lines()) {
      ++at_;
      return;
    }
    begun_ = true;
    if (c == '\'') return take_single();
    if (c == '"') return take_double();
    if (c == '\\') return take_quoted();
    word_ += c;
  }

  // Which is nothing at all, not even the begin of a word (POSIX, Shell Command Language, 2.2.1).
  [[nodiscard]] bool joins_lines() const { return text_.compare(at_, 2, "\\\n") == 0; }

  void end_word() {
    if (begun_) words_.push_back(std::exchange(word_, {}));
    begun_ = false;
  }

  void take_quoted() {
    if (++at_ >= text_.size()) throw UserError("a backslash at the end quotes nothing");
    if (text_[at_] != '\n') word_ += text_[at_];
  }

  void take_single() {
    const std::size_t end = text_.find('\'', at_ + 1);
    if (end == std::string::npos) throw UserError("a quotation that begins with ' does not end");
    word_ += text_.substr(at_ + 1, end - at_ - 1);
    at_ = end;
  }

  void take_double() {
    constexpr std::string_view k_quoted = "$`\"\\\n";
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size() && k_quoted.find(text_[at_ + 1]) != std::string_view::npos)
        take_quoted();
      else
        word_ += text_[at_];
    }
    if (at_ >= text_.size()) throw UserError("a quotation that begins with \" does not end");
  }

  const std::string& text_;
  std::size_t at_ = 0;
  bool begun_ = false;
  std::string word_;
  std::vector<std::string> words_;
};

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// A running command, whose output is read from a pipe. Where this ends first, so does the command.
class Running {
 public:
  Running(const std::string& name, const std::vector<std::string>& words) : name_(name) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe");
    output_ = ends[0];
    const Descriptor input(ends[1]);
    SpawnSettings settings;
    settings.open("/dev/null", O_RDONLY, STDIN_FILENO);
    settings.pass(input.get(), STDOUT_FILENO);
    const int code = settings.spawn(process_, words, environ);
    if (code == 0) return;
    ::close(output_);
    throw UserError(fmt::format("{} cannot be started: {}", name_, std::generic_category().message(code)));
  }
  ~Running() {
    ::close(output_);
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    static_cast<void>(wait());
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  /// 0 at the end.
  std::size_t read(std::span<char> to) const {
    for (;;) {
      const ssize_t count = ::read(output_, to.data(), to.size());
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno != EINTR) fail("cannot read what " + name_ + " gives");
    }
  }

  /// Throws UserError where it failed.
  void finish() {
    const int status = wait();
    process_ = 0;
    if (WIFSIGNALED(status)) throw UserError(fmt::format("{} was ended by signal {}", name_, WTERMSIG(status)));
    if (WEXITSTATUS(status) != 0)
      throw UserError(fmt::format("{} failed with exit code {}", name_, WEXITSTATUS(status)));
  }

 private:
  [[nodiscard]] int wait() const {
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }

  const std::string& name_;
  int output_ = -1;
  pid_t process_ = 0;
};

void write_all(int descriptor, std::span<const char> bytes, const std::filesystem::path& file) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot write " + file.string());
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

std::vector<std::string> words_of(const std::string& name) {
  try {
    std::vector<std::string> words = split_words(name.substr(k_prefix.size()));
    if (words.empty()) throw UserError("no command follows");
    return words;
  } catch (const UserError& error) {
    throw UserError(name + ": " + error.what() + R"(; write "pipe:COMMAND ARGUMENTS")");
  }
}

}  // namespace

bool is_pipe(const std::string& name) {
  return name.starts_with(k_prefix);
}

std::chrono::seconds patience_with_commands(const DataConfiguration& data) {
  const auto names_some = [](const DatasetConfiguration& one) {
    return is_pipe(one.path) || std::ranges::any_of(one.files, is_pipe);
  };
  const bool some = names_some(data.train) || (data.validation && names_some(*data.validation));
  return some ? std::chrono::hours(24) : std::chrono::hours(0);
}

std::vector<std::string> split_words(const std::string& text) {
  return Splitter(text).words();
}

std::uint64_t read_pipe(const std::string& name, const std::filesystem::path& file, std::uint64_t most_bytes) {
  const Descriptor out(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (out.get() < 0) fail("cannot write " + file.string());
  Running running(name, words_of(name));
  std::vector<char> some(std::size_t{1} << 18);
  std::uint64_t bytes = 0;
  while (const std::size_t count = running.read(some)) {
    if (count > most_bytes - bytes)
      throw UserError(fmt::format("{} gives more than is left of data.spool_mb: write more, if {} has the room", name,
                                  file.parent_path().string()));
    write_all(out.get(), std::span(some).first(count), file);
    bytes += count;
  }
  running.finish();
  if (bytes == 0) throw UserError(name + " gave nothing");
  return bytes;
}

}  // namespace onebatch
