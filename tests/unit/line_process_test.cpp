#include "launch/line_process.hpp"

#include "scratch_folder.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

namespace onebatch::launch {
namespace {

using std::chrono::milliseconds;
using testing::read_bytes;
using testing::ScratchFolder;

using Clock = std::chrono::steady_clock;
constexpr milliseconds k_long{20000};

LineProcessOptions shell(const ScratchFolder& folder, const std::string& script) {
  return {.name = "reader", .command = {"sh", "-c", script}, .output = folder / "said.log"};
}

std::string notes_of(LineProcess& process) {
  std::string all;
  for (const std::string& note : process.take_notes()) all += note + "\n";
  return all;
}

// Waits until it has said something.
std::string first_notes_of(LineProcess& process) {
  const auto until = Clock::now() + k_long;
  for (;;) {
    std::string notes = notes_of(process);
    if (!notes.empty() || Clock::now() > until) return notes;
    std::this_thread::sleep_for(milliseconds(10));
  }
}

bool is_gone(pid_t process) {
  return waitpid(process, nullptr, WNOHANG) < 0 && errno == ECHILD && kill(process, 0) != 0;
}

TEST(LineProcessTest, every_line_comes_in_order_and_its_output_is_kept) {
  const ScratchFolder folder;
  LineProcess process(shell(folder, "cat; echo over >&2"));
  std::string expected;
  for (int i = 0; i < 1000; ++i) {
    process.write("line " + std::to_string(i), Line::may_be_dropped);
    expected += "line " + std::to_string(i) + "\n";
  }
  process.close(k_long);
  EXPECT_EQ(read_bytes(folder / "said.log"), expected + "over\n");
  EXPECT_EQ(notes_of(process), "");
  EXPECT_TRUE(is_gone(process.process()));
}

TEST(LineProcessTest, who_writes_never_waits_and_what_is_left_out_is_counted) {
  const ScratchFolder folder;
  LineProcessOptions options = shell(folder, "sleep 1; cat >/dev/null");
  options.most_lines = 10;
  LineProcess process(options);
  const auto begin = Clock::now();
  const std::string long_line(100000, 'x');  // more than a pipe holds
  for (int i = 0; i < 30; ++i) process.write(long_line, Line::may_be_dropped);
  for (int i = 0; i < 5; ++i) process.write("kept", Line::kept);
  EXPECT_LT(Clock::now() - begin, milliseconds(500));
  EXPECT_NE(notes_of(process).find("reader is slower than the run"), std::string::npos);
  process.close(k_long);
  const std::string notes = notes_of(process);
  EXPECT_NE(notes.find("reader was not told of "), std::string::npos) << notes;
}

TEST(LineProcessTest, one_that_dies_is_said_once_and_leaves_no_zombie) {
  const ScratchFolder folder;
  LineProcess process(shell(folder, "read line; exit 3"));
  process.write("first", Line::kept);
  const std::string notes = first_notes_of(process);
  EXPECT_NE(notes.find("reader has ended with code 3: training goes on without it"), std::string::npos) << notes;
  EXPECT_TRUE(is_gone(process.process()));
  for (int i = 0; i < 100; ++i) process.write("more", Line::kept);
  process.close(k_long);
  EXPECT_EQ(notes_of(process), "");
}

TEST(LineProcessTest, one_that_dies_of_a_signal_is_said) {
  const ScratchFolder folder;
  LineProcess process(shell(folder, "kill -9 $$"));
  EXPECT_NE(first_notes_of(process).find("was ended by signal 9"), std::string::npos);
  EXPECT_TRUE(is_gone(process.process()));
}

TEST(LineProcessTest, one_that_reads_no_longer_is_said_and_may_go_on) {
  const ScratchFolder folder;
  LineProcess process(shell(folder, "exec <&-; sleep 1; echo done"));
  std::string notes;
  const auto until = Clock::now() + k_long;
  while (notes.empty() && Clock::now() < until) {
    process.write("line", Line::kept);
    std::this_thread::sleep_for(milliseconds(10));
    notes = notes_of(process);
  }
  EXPECT_NE(notes.find("reader reads no longer"), std::string::npos) << notes;
  process.close(k_long);
  EXPECT_EQ(read_bytes(folder / "said.log"), "done\n");
}

TEST(LineProcessTest, one_that_does_not_end_in_time_is_ended_with_its_children) {
  const ScratchFolder folder;
  LineProcess process(shell(folder, "sleep 1000 & trap '' TERM; while :; do sleep 0.1; done"));
  const auto begin = Clock::now();
  process.close(milliseconds(300));
  EXPECT_LT(Clock::now() - begin, milliseconds(5000));
  EXPECT_NE(notes_of(process).find("has not ended in time"), std::string::npos);
  EXPECT_TRUE(is_gone(process.process()));
}

TEST(LineProcessTest, what_cannot_be_started_is_named) {
  const ScratchFolder folder;
  EXPECT_THROW(LineProcess({.name = "x", .command = {"/nowhere/program"}, .output = folder / "said.log"}),
               std::system_error);
  EXPECT_THROW(LineProcess({.name = "x", .command = {"cat"}, .output = folder.path() / "no" / "said.log"}),
               std::system_error);
}

TEST(LineProcessTest, it_does_not_believe_that_it_is_a_rank) {
  const ScratchFolder folder;
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  LineProcess process(shell(folder, "env"));
  process.close(k_long);
  unsetenv("OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(read_bytes(folder / "said.log").find("OMPI_"), std::string::npos);
}

TEST(LineProcessTest, programs_are_found_as_by_a_shell) {
  EXPECT_TRUE(is_program("sh"));
  EXPECT_TRUE(is_program("/bin/sh"));
  EXPECT_FALSE(is_program("no-such-program-here"));
  EXPECT_FALSE(is_program("/etc/passwd"));
  EXPECT_FALSE(is_program("/bin"));
}

}  // namespace
}  // namespace onebatch::launch
