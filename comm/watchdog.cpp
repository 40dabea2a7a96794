#include "comm/watchdog.hpp"

#include "comm/local_communicator.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace onebatch::comm {
namespace {

constexpr auto k_poll = std::chrono::milliseconds(100);

std::int64_t now_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Watchdog::Watchdog(int rank, int exit_code) : rank_(rank), exit_code_(exit_code), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_all();
  thread_.join();
}

void Watchdog::enter(const char* operation, std::size_t bytes) {
  operation_ = operation;
  bytes_ = bytes;
  ++sequence_;
  entered_nanoseconds_ = now_nanoseconds();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stop_changed_.wait_for(lock, k_poll, [this] { return stop_; })) check();
}

void Watchdog::check() {
  const std::int64_t entered = entered_nanoseconds_;
  if (entered == 0) return;
  const double seconds = static_cast<double>(now_nanoseconds() - entered) * 1e-9;
  if (seconds < timeout_seconds_) return;
  char text[256];
  std::snprintf(
      text, sizeof(text),
      "waited %.1f s for the other ranks in %s (operation %llu, %zu bytes), more than comm.timeout_seconds: one of them is stuck or gone",
      seconds, operation_.load(), static_cast<unsigned long long>(sequence_.load()), bytes_.load());
  say_failure(rank_, text);
  std::_Exit(exit_code_);
}

}  // namespace onebatch::comm
