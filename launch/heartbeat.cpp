#include "launch/heartbeat.hpp"

#include "launch/standard_streams.hpp"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <utility>

namespace onebatch::launch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto k_between_looks = std::chrono::milliseconds(250);
constexpr double k_quiet_on_a_terminal = 0.75;  // seconds, as all of these
constexpr double k_quiet_elsewhere = 4.0;       // five are the most that anybody should wait
constexpr double k_worth_a_word = 1.0;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Signals are for the thread that trains.
void take_no_signals() {
  sigset_t all;
  sigfillset(&all);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, number);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

Heartbeat::Heartbeat(std::function<std::string()> activity)
    : activity_(std::move(activity)), thread_([this] { beat(); }) {}

Heartbeat::~Heartbeat() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void Heartbeat::beat() {
  take_no_signals();
  const auto begin = Clock::now();
  auto stage_begin = begin;
  std::string stage;
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, k_between_looks, [this] { return over_; })) {
    std::string now = activity_();
    if (now.empty()) now = "getting ready";
    if (now != stage) stage_begin = Clock::now();
    stage = std::move(now);
    const bool live = is_live();
    if (silent_seconds() < (live ? k_quiet_on_a_terminal : k_quiet_elsewhere)) continue;
    const double lasts = since(stage_begin);
    const std::string for_so_long = lasts < k_worth_a_word ? "" : fmt::format(" for {:.0f} s", lasts);
    say_activity(fmt::format("{:.0f} s: {}{}", since(begin), stage, for_so_long));
  }
}

}  // namespace onebatch::launch
