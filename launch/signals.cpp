#include "launch/signals.hpp"

#include "comm/incident.hpp"
#include "launch/launched_ranks.hpp"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <thread>

namespace onebatch::launch {
namespace {

constexpr std::int64_t k_meant_as_second = 500'000'000;   // nanoseconds: launchers send some signals twice
constexpr std::int64_t k_longest_linger = 2'000'000'000;  // nanoseconds

// A signal handler can reach nothing but static storage.
std::atomic<int> stop_signal{0};
std::atomic<std::int64_t> first_moment{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);
std::atomic<bool> launcher_ends_us{false};

std::int64_t now_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

extern "C" void onebatch_note_signal(int number) {
  const std::int64_t now = now_nanoseconds();
  const int before = stop_signal.exchange(number);
  if (before != number) first_moment = now;
  if ((number != SIGINT && number != SIGTERM && number != SIGHUP) || before != number ||
      now - first_moment < k_meant_as_second)
    return;
  std::signal(number, SIG_DFL);
  std::raise(number);
}

extern "C" void onebatch_note_the_launchers_end(int) {
  launcher_ends_us = true;
}

}  // namespace

// Before any library starts, once they lie in memory: LibTorch registers its operators for most of a second, and a
// signal's default is death. Whoever is one of several ranks under a launcher that kills on SIGTERM is found by its
// environment.
void listen_from_the_start(int /*argc*/, char** /*argv*/, char** environment) {
  bool one_of_several = false;
  const char* launch_folder = nullptr;
  for (char** entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE=", "PMI_SIZE="})
      one_of_several = one_of_several || std::strncmp(*entry, name, std::strlen(name)) == 0;
    const std::size_t length = std::strlen(k_launch_folder);
    if (std::strncmp(*entry, k_launch_folder, length) == 0 && (*entry)[length] == '=')
      launch_folder = *entry + length + 1;
  }
  listen_for_stop_signals(one_of_several ? SignalScope::ranks : SignalScope::alone);
  comm::note_requests();
  if (tell_launcher(launch_folder)) onebatch_note_signal(SIGUSR1);
}

const std::atomic<int>* stop_signal_flag() {
  return &stop_signal;
}

void listen_for_stop_signals(SignalScope scope) {
  std::signal(SIGUSR1, onebatch_note_signal);
  std::signal(SIGUSR2, onebatch_note_signal);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    const auto before = std::signal(number, scope == SignalScope::alone ? onebatch_note_signal : SIG_DFL);
    if (number == SIGHUP && before == SIG_IGN) std::signal(number, SIG_IGN);  // nohup
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a full quota is an error that names the file, not a death
  std::signal(SIGPIPE, SIG_IGN);
}

void stop_listening_for_signals() {
  for (const int number : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGQUIT}) std::signal(number, SIG_DFL);
  if (std::signal(SIGHUP, SIG_DFL) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  if (const int noted = stop_signal; noted != 0) std::raise(noted);
  if (comm::take_request()) std::raise(SIGQUIT);
}

void let_the_failed_rank_end_first() {
  std::signal(SIGTERM, onebatch_note_the_launchers_end);
  const std::int64_t until = now_nanoseconds() + k_longest_linger;
  while (!launcher_ends_us && now_nanoseconds() < until) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace onebatch::launch
