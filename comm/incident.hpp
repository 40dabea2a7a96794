// What is known at the moment when a rank is stuck, dies or is asked.
#pragma once

#include "comm/status_board.hpp"
#include "comm/thread_stacks.hpp"

#include <array>
#include <chrono>
#include <mutex>

namespace onebatch::comm {

/// One of a rank's collectives and other operations that block. Times are seconds before now.
struct PastOperation {
  std::uint64_t sequence = 0;
  std::string name;
  std::uint64_t bytes = 0;
  double began_seconds_ago = 0.0;
  double seconds = 0.0;
  bool ended = false;
};

struct Incident {
  enum class Kind { timeout, crash, request, loss };
  Kind kind = Kind::request;
  std::string reason;
  int rank = 0;
  std::string host;
  std::vector<RankReport> ranks;          // all that could be asked
  std::vector<PastOperation> operations;  // this rank's last, the oldest first
  struct Process {
    int rank = 0;
    std::vector<ThreadStack> threads;
  };
  std::vector<Process> processes;  // this one, and those of its node that are stopped
};

/// The last operations of this rank. Written by the threads that run them, one at a time; read by another.
class OperationLog {
 public:
  static constexpr std::size_t k_kept = 32;
  void begin(std::uint64_t sequence, const char* name, std::uint64_t bytes);
  void end();
  /// The oldest first; empty where a thread has died while it wrote.
  [[nodiscard]] std::vector<PastOperation> read() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::uint64_t sequence = 0;
    const char* name = nullptr;
    std::uint64_t bytes = 0;
    Clock::time_point begun;
    Clock::time_point ended;  // the epoch: not yet
  };

  mutable std::timed_mutex mutex_;
  std::array<Entry, k_kept> entries_{};
  std::size_t begun_ = 0;
};

/// A signal that a watching thread is to act on.
struct NotedSignal {
  int number = 0;  // 0: none
  long thread = 0;
};

/// From now on SIGQUIT is a request, noted for whoever asks next. May be called before any library has started.
void note_requests();
/// The same, and a thread that dies of SIGSEGV, SIGBUS, SIGILL, SIGFPE or SIGABRT waits a moment for its crash to be
/// told, then dies as it would have.
void note_crashes_and_requests();
/// The request since the last call.
[[nodiscard]] bool take_request();
/// The crash that waits.
[[nodiscard]] NotedSignal crash_under_way();
/// Lets it go on.
void crash_is_told();

/// From now on SIGTERM, with which launchers end the ranks that are left, is noted instead of ending this process.
/// False, and nothing is changed, where it has another meaning already (a run that saves and stops at it).
bool begin_to_note_the_end();
/// It ends the process again, also the one that was noted.
void stop_noting_the_end();
[[nodiscard]] bool end_is_noted();
/// As it would have without all this.
void end_as_the_launcher_wants();

}  // namespace onebatch::comm
