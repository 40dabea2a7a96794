// Works that wait for each other in their middle, of which one at a time runs.
#include "trainer/step/turns.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace onebatch {
namespace {

class TurnsTest : public testing::Test {
 protected:
  // Each pauses twice.
  void run(std::size_t number) {
    const auto work = [&](std::size_t mine) {
      for (const char* part : {"a", "b", "c"}) {
        if (running_.exchange(true)) said_.emplace_back("two at once");
        said_.push_back(part + std::to_string(mine));
        threads_.push_back(std::this_thread::get_id());
        running_ = false;
        if (mine == thrower_ && *part == 'b') throw std::runtime_error("work");
        if (*part != 'c') turns_.pause(mine);
      }
    };
    turns_.run(number, work, [&] {
      said_.emplace_back("all");
      EXPECT_EQ(std::this_thread::get_id(), own_);
      if (++pauses_ == failing_pause_) throw std::invalid_argument("exchange");
    });
  }

  static constexpr std::size_t k_nobody = 99;

  Turns turns_{c10::kCPU};
  std::vector<std::string> said_;
  std::vector<std::thread::id> threads_;
  std::atomic<bool> running_ = false;
  std::thread::id own_ = std::this_thread::get_id();
  std::size_t thrower_ = k_nobody;
  int pauses_ = 0;
  int failing_pause_ = 0;
};

TEST_F(TurnsTest, runs_one_after_the_other_from_pause_to_pause) {
  run(3);
  const std::vector<std::string> expected = {"a0", "a1", "a2", "all", "b0", "b1", "b2", "all", "c0", "c1", "c2"};
  EXPECT_EQ(said_, expected);
}

TEST_F(TurnsTest, runs_one_alone_on_the_caller_s_thread) {
  run(1);
  const std::vector<std::string> expected = {"a0", "all", "b0", "all", "c0"};
  EXPECT_EQ(said_, expected);
  for (const std::thread::id id : threads_) EXPECT_EQ(id, own_);
}

TEST_F(TurnsTest, a_work_s_thread_is_the_same_each_time) {
  run(3);
  const std::vector<std::thread::id> before = std::exchange(threads_, {});
  run(3);
  EXPECT_EQ(threads_, before);
  threads_.clear();
  run(2);
  EXPECT_EQ(threads_, (std::vector{before[0], before[1], before[0], before[1], before[0], before[1]}));
}

TEST_F(TurnsTest, ends_all_where_one_throws) {
  thrower_ = 1;
  EXPECT_THROW(run(3), std::runtime_error);
  const std::vector<std::string> expected = {"a0", "a1", "a2", "all", "b0", "b1"};
  EXPECT_EQ(std::vector<std::string>(said_.begin(), said_.begin() + 6), expected);
  EXPECT_EQ(pauses_, 1);
  EXPECT_EQ(std::ranges::count_if(said_, [](const std::string& one) { return one[0] == 'c'; }), 0);
}

TEST_F(TurnsTest, throws_what_the_exchange_has_thrown) {
  for (const std::size_t number : {std::size_t{1}, std::size_t{3}}) {
    pauses_ = 0;
    failing_pause_ = 2;
    EXPECT_THROW(run(number), std::invalid_argument);
  }
}

TEST_F(TurnsTest, can_run_again_after_a_failure) {
  thrower_ = 0;
  EXPECT_THROW(run(2), std::runtime_error);
  thrower_ = k_nobody;
  said_.clear();
  run(2);
  EXPECT_EQ(said_.back(), "c1");
}

}  // namespace
}  // namespace onebatch
