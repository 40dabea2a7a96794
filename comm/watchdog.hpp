// Notices that a blocking collective has gone on for too long and ends the process: MPI gives no way to leave it. See Note [Nobody waits
// for the dead].
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

namespace onebatch::comm {

class Watchdog {
 public:
  /// `exit_code` is the process's when a deadline passes.
  Watchdog(int rank, int exit_code);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void set_timeout_seconds(double seconds) { timeout_seconds_ = seconds; }

  /// Stands guard over one operation while it lives.
  class Guard {
   public:
    Guard(Watchdog& watchdog, const char* operation, std::size_t bytes) : watchdog_(watchdog) { watchdog_.enter(operation, bytes); }
    ~Guard() { watchdog_.leave(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Watchdog& watchdog_;
  };

 private:
  void enter(const char* operation, std::size_t bytes);
  void leave() { entered_nanoseconds_ = 0; }
  void watch();
  void check();

  int rank_;
  int exit_code_;
  std::atomic<double> timeout_seconds_{600.0};
  std::atomic<std::int64_t> entered_nanoseconds_{0};  // 0: no operation is going on
  std::atomic<const char*> operation_{""};
  std::atomic<std::size_t> bytes_{0};
  std::atomic<std::uint64_t> sequence_{0};
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace onebatch::comm
