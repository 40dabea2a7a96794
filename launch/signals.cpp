#include "launch/signals.hpp"

#include <csignal>

namespace onebatch::launch {
namespace {

// A signal handler can reach nothing but static storage.
std::atomic<int> stop_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void onebatch_note_signal(int number) {
  const int before = stop_signal.exchange(number);
  if (number == SIGINT && before == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
}

}  // namespace

const std::atomic<int>* install_stop_signals(SignalScope scope) {
  std::signal(SIGUSR1, onebatch_note_signal);
  std::signal(SIGUSR2, onebatch_note_signal);
  if (scope == SignalScope::alone) {
    std::signal(SIGTERM, onebatch_note_signal);
    std::signal(SIGINT, onebatch_note_signal);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a full quota is an error that names the file, not a death
  std::signal(SIGPIPE, SIG_IGN);
  return &stop_signal;
}

}  // namespace onebatch::launch
