#include "comm/incident.hpp"

#include "comm/handler_stack.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>

namespace onebatch::comm {
namespace {

constexpr int k_most_waits = 400;  // of 10 ms: what a dying thread gives those that tell of it
constexpr std::size_t k_handler_stack_bytes = 65536;

// A signal handler can reach nothing but static storage.
std::atomic<bool> requested{false};
std::atomic<int> crash_number{0};
std::atomic<long> crash_thread{0};
std::atomic<bool> told{false};
std::atomic<bool> end_noted{false};

long this_thread() {
  return syscall(SYS_gettid);
}

extern "C" void onebatch_note_request(int /*number*/) {
  requested = true;
}

extern "C" void onebatch_note_crash(int number) {
  long none = 0;
  if (crash_thread.compare_exchange_strong(none, this_thread()))
    crash_number = number;  // last: it is what is looked at
  const timespec pause{0, 10'000'000};
  for (int i = 0; i < k_most_waits && !told; ++i) nanosleep(&pause, nullptr);
  std::signal(number, SIG_DFL);
  std::raise(number);
}

extern "C" void onebatch_note_end(int /*number*/) {
  end_noted = true;
}

}  // namespace

void OperationLog::begin(std::uint64_t sequence, const char* name, std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  entries_[begun_++ % k_kept] = {sequence, name, bytes, Clock::now(), {}};
}

void OperationLog::end() {
  const std::scoped_lock lock(mutex_);
  if (begun_ > 0) entries_[(begun_ - 1) % k_kept].ended = Clock::now();
}

std::vector<PastOperation> OperationLog::read() const {
  const std::unique_lock lock(mutex_, std::chrono::milliseconds(100));
  std::vector<PastOperation> operations;
  if (!lock.owns_lock()) return operations;
  const auto now = Clock::now();
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  for (std::size_t i = begun_ - std::min(begun_, k_kept); i < begun_; ++i) {
    const Entry& entry = entries_[i % k_kept];
    const bool ended = entry.ended != Clock::time_point();
    operations.push_back({entry.sequence, entry.name, entry.bytes, seconds(now - entry.begun),
                          seconds((ended ? entry.ended : now) - entry.begun), ended});
  }
  return operations;
}

HandlerStack::HandlerStack() : room_(std::make_unique<char[]>(k_handler_stack_bytes)) {
  const stack_t elsewhere{room_.get(), 0, k_handler_stack_bytes};
  sigaltstack(&elsewhere, nullptr);
}

HandlerStack::~HandlerStack() {
  const stack_t none{nullptr, SS_DISABLE, 0};
  sigaltstack(&none, nullptr);
}

void note_requests() {
  std::signal(SIGQUIT, onebatch_note_request);
}

void note_crashes_and_requests() {
  note_requests();
  static const HandlerStack of_main;
  struct sigaction action {};
  action.sa_handler = onebatch_note_crash;
  action.sa_flags = SA_ONSTACK;
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigaction(number, &action, nullptr);
}

bool take_request() {
  return requested.exchange(false);
}

NotedSignal crash_under_way() {
  return {crash_number, crash_thread};
}

void crash_is_told() {
  told = true;
}

bool begin_to_note_the_end() {
  struct sigaction before {};
  sigaction(SIGTERM, nullptr, &before);
  if (before.sa_handler != SIG_DFL) return false;
  std::signal(SIGTERM, onebatch_note_end);
  return true;
}

void stop_noting_the_end() {
  std::signal(SIGTERM, SIG_DFL);
  if (end_noted.exchange(false)) end_as_the_launcher_wants();
}

bool end_is_noted() {
  return end_noted;
}

void end_as_the_launcher_wants() {
  std::signal(SIGTERM, SIG_DFL);
  kill(getpid(), SIGTERM);
}

}  // namespace onebatch::comm
