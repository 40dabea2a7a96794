#include "trainer/io/child_process.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <system_error>

namespace onebatch {
namespace {

using Clock = std::chrono::steady_clock;

ChildRequest shell(const std::string& script) {
  return {.words = {"sh", "-c", script}};
}

TEST(ChildProcessTest, both_streams_and_the_code_come_through) {
  std::string out;
  std::string error;
  ChildRequest request = shell("echo a; echo b >&2; echo \"$TOLD\"; exit 7");
  request.environment = {{"TOLD", "c"}};
  request.out = [&](std::string_view text) { out += text; };
  request.error = [&](std::string_view text) { error += text; };
  const ChildResult result = run_child(request);
  EXPECT_EQ(result.code, 7);
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.end, ChildEnd::by_itself);
  EXPECT_EQ(out, "a\nc\n");
  EXPECT_EQ(error, "b\n");
}

TEST(ChildProcessTest, more_than_a_pipe_holds_comes_through) {
  std::size_t bytes = 0;
  ChildRequest request = shell("head -c 1000000 /dev/zero");
  request.out = [&](std::string_view text) { bytes += text.size(); };
  EXPECT_EQ(run_child(request).code, 0);
  EXPECT_EQ(bytes, 1000000U);
}

TEST(ChildProcessTest, a_signal_is_told) {
  const ChildResult result = run_child(shell("kill -9 $$"));
  EXPECT_EQ(result.signal, SIGKILL);
  EXPECT_EQ(result.code, 0);
}

TEST(ChildProcessTest, what_is_not_there_is_an_error) {
  EXPECT_THROW(run_child({.words = {"/nowhere/program"}}), std::system_error);
}

TEST(ChildProcessTest, one_that_is_to_stop_sees_its_input_end) {
  ChildRequest request = shell("read line; exit 5");
  request.stop = [] { return true; };
  const ChildResult result = run_child(request);
  EXPECT_EQ(result.end, ChildEnd::stopped);
  EXPECT_EQ(result.code, 5);
}

TEST(ChildProcessTest, one_that_does_not_stop_is_killed_with_what_it_has_started) {
  const auto begin = Clock::now();
  ChildRequest request = shell("sleep 100 & sleep 100");
  request.patience = std::chrono::seconds(0);
  const ChildResult result = run_child(request);
  EXPECT_EQ(result.end, ChildEnd::too_late);
  EXPECT_EQ(result.signal, SIGKILL);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(60));
}

TEST(ChildProcessTest, it_believes_that_it_is_no_rank) {
  ::setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
  std::string out;
  ChildRequest request = shell("echo \"size ${OMPI_COMM_WORLD_SIZE-none}\"");
  request.out = [&](std::string_view text) { out += text; };
  run_child(request);
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(out, "size none\n");
}

}  // namespace
}  // namespace onebatch
