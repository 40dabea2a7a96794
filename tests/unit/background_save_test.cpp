#include "trainer/checkpoint/background_save.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace onebatch {
namespace {

using namespace std::chrono_literals;

TEST(BackgroundSaveTest, nothing_is_under_way_at_first) {
  const BackgroundSave save;
  EXPECT_FALSE(save.is_under_way());
  EXPECT_FALSE(save.is_writing());
  EXPECT_TRUE(save.wait_for(0s));
}

TEST(BackgroundSaveTest, the_caller_goes_on_while_it_is_written) {
  std::promise<void> go_on;
  BackgroundSave save;
  save.start(7, [&] {
    go_on.get_future().wait();
    return std::filesystem::path("step-7");
  });
  EXPECT_TRUE(save.is_under_way());
  EXPECT_TRUE(save.is_writing());
  EXPECT_FALSE(save.wait_for(10ms)) << "no longer than it was told to";
  go_on.set_value();
  const SavedCheckpoint saved = save.take();
  EXPECT_EQ(saved.step, 7);
  EXPECT_EQ(saved.folder, "step-7");
  EXPECT_GE(saved.end, saved.begin);
  EXPECT_FALSE(save.is_under_way());
}

TEST(BackgroundSaveTest, what_it_threw_is_thrown_once_when_it_is_taken) {
  BackgroundSave save;
  save.start(1, []() -> std::filesystem::path { throw std::runtime_error("the disk is full"); });
  EXPECT_TRUE(save.wait_for(60s));
  EXPECT_TRUE(save.is_under_way()) << "until it is taken";
  EXPECT_THROW(save.take(), std::runtime_error);
  save.start(2, [] { return std::filesystem::path("step-2"); });
  EXPECT_EQ(save.take().step, 2);
}

}  // namespace
}  // namespace onebatch
