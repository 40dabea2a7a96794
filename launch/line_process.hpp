// A program that is given lines on its standard input, by a thread of its own: who has a line never waits for it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace onebatch::launch {

/// Whether a line may be left out where its reader is far behind.
enum class Line { may_be_dropped, kept };

struct LineProcessOptions {
  std::string name;                  // in what is said of it
  std::vector<std::string> command;  // program and arguments
  std::filesystem::path output;      // what it says is added to this file
  std::size_t most_lines = 4096;     // that wait; of those that are kept, four times as many
};

class LineProcess {
 public:
  /// Starts it, in a process group of its own: the terminal's Ctrl-C is not for it. Throws std::system_error naming
  /// what cannot be started.
  explicit LineProcess(LineProcessOptions options);
  /// Closes it, with no time left.
  ~LineProcess();
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  void write(std::string line, Line kind);
  /// The end of its input. Waits until it has read all and has ended; what has not by then is ended. Idempotent.
  void close(std::chrono::milliseconds patience);
  /// What is to be said of it since the last call: that it has ended, that lines were left out.
  [[nodiscard]] std::vector<std::string> take_notes();
  [[nodiscard]] pid_t process() const { return child_; }

 private:
  using Clock = std::chrono::steady_clock;
  void start();
  void feed();
  // False where it reads no longer, or its time is over.
  bool pass_on(const std::string& text);
  void note_if_ended();
  void wait_for_end();
  void end();
  void say(std::string note);
  [[nodiscard]] bool is_too_late();

  LineProcessOptions options_;
  int input_ = -1;
  pid_t child_ = -1;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  std::vector<std::string> notes_;
  std::int64_t dropped_ = 0;
  bool closing_ = false;
  bool ended_ = false;
  Clock::time_point deadline_;
  std::thread thread_;
};

/// Whether a shell would find this program: it is executable, at its path or in PATH.
[[nodiscard]] bool is_program(const std::string& word);

}  // namespace onebatch::launch
