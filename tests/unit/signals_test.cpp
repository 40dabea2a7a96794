#include "launch/signals.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace onebatch::launch {
namespace {

constexpr int k_still_there = 7;
constexpr std::chrono::milliseconds k_later{700};

TEST(SignalsDeathTest, a_second_one_of_a_kind_ends_at_once) {
  EXPECT_EXIT(
      {
        listen_for_stop_signals(SignalScope::alone);
        std::raise(SIGINT);
        std::this_thread::sleep_for(k_later);
        std::raise(SIGINT);
        _exit(k_still_there);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

// As a kernel and a shell send it, where a terminal closes.
TEST(SignalsDeathTest, one_that_comes_twice_at_once_is_one_whatever_came_before) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_DFL);  // nohup's would stay
        listen_for_stop_signals(SignalScope::alone);
        std::raise(SIGINT);
        std::this_thread::sleep_for(k_later);
        std::raise(SIGHUP);
        std::raise(SIGHUP);
        _exit(*stop_signal_flag() == SIGHUP ? k_still_there : 1);
      },
      ::testing::ExitedWithCode(k_still_there), "");
}

}  // namespace
}  // namespace onebatch::launch
