#include "comm/watchdog.hpp"

#include <gtest/gtest.h>

#include <array>

namespace onebatch::comm {
namespace {

const std::vector<RankPlace> k_places = {{"alpha", 0, ""}, {"alpha", 0, ""}, {"beta", 2, ""}};

RankReport report(int rank, std::uint64_t sequence, bool inside) {
  RankReport made;
  made.rank = rank;
  made.sequence = sequence;
  made.inside = inside;
  made.operation = "all_reduce";
  made.bytes = 400;
  made.operation_seconds = 2.5;
  made.activity = "micro-batches of step 7";
  made.activity_seconds = 4.25;
  made.process = "running";
  return made;
}

TEST(MissingTextTest, names_who_has_entered_and_who_has_not) {
  const std::string text = missing_text({report(0, 9, true), report(1, 8, false), report(2, 9, true)}, k_places, 9);
  EXPECT_NE(text.find("entered by rank 0, 2"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1 (alpha): last seen in: micro-batches of step 7, since 4.2 s"), std::string::npos) << text;
}

TEST(MissingTextTest, a_stopped_process_is_missing_even_where_it_had_entered) {
  RankReport stopped = report(1, 9, true);
  stopped.process = "stopped";
  const std::string text = missing_text({report(0, 9, true), stopped, report(2, 9, true)}, k_places, 9);
  EXPECT_NE(text.find("rank 1 (alpha): its process is stopped"), std::string::npos) << text;
}

TEST(MissingTextTest, a_rank_in_an_earlier_operation_is_told_so) {
  const std::string text = missing_text({report(0, 9, true), report(1, 7, true), report(2, 9, true)}, k_places, 9);
  EXPECT_NE(text.find("rank 1 (alpha): in an earlier operation, all_reduce (number 7)"), std::string::npos) << text;
}

TEST(MissingTextTest, a_host_that_does_not_answer_is_named) {
  const std::string text = missing_text({report(0, 9, true), report(1, 9, true)}, k_places, 9);
  EXPECT_NE(text.find("rank 2 (beta): no answer from its host"), std::string::npos) << text;
}

TEST(MissingTextTest, where_all_have_entered_it_is_the_wire) {
  const std::string text = missing_text({report(0, 9, true), report(1, 9, true), report(2, 10, false)}, k_places, 9);
  EXPECT_EQ(text, "all ranks have entered it: what connects them is stuck");
}

TEST(RankReportTest, survives_its_line) {
  const auto read = RankReport::from_lines(report(3, 11, true).to_line() + "no report at all\n" + report(4, 12, false).to_line());
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].rank, 3);
  EXPECT_EQ(read[0].sequence, 11U);
  EXPECT_TRUE(read[0].inside);
  EXPECT_EQ(read[0].bytes, 400U);
  EXPECT_EQ(read[0].operation, "all_reduce");
  EXPECT_EQ(read[0].activity, "micro-batches of step 7");
  EXPECT_EQ(read[0].process, "running");
  EXPECT_FALSE(read[1].inside);
}

TEST(StatusBoardTest, others_read_what_a_rank_says) {
  alignas(64) std::array<std::byte, 4096> memory{};
  ASSERT_LE(StatusBoard::bytes_needed(2), memory.size());
  StatusBoard first(memory.data(), {4, 6}, 0);
  StatusBoard second(memory.data(), {4, 6}, 1);
  first.set_activity("opening data");
  second.enter("broadcast", 64);
  const auto seen = first.read();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].rank, 4);
  EXPECT_EQ(seen[0].activity, "opening data");
  EXPECT_FALSE(seen[0].inside);
  EXPECT_EQ(seen[1].rank, 6);
  EXPECT_TRUE(seen[1].inside);
  EXPECT_EQ(seen[1].operation, "broadcast");
  EXPECT_EQ(seen[1].bytes, 64U);
  EXPECT_EQ(seen[1].process, "running");
  EXPECT_GE(second.own_seconds_inside(), 0.0);
  second.leave();
  EXPECT_LT(second.own_seconds_inside(), 0.0);
  EXPECT_TRUE(first.claim_report());
  EXPECT_FALSE(second.claim_report());
}

TEST(StatusBoardTest, text_that_is_too_long_is_cut) {
  alignas(64) std::array<std::byte, 4096> memory{};
  StatusBoard board(memory.data(), {0}, 0);
  board.set_activity(std::string(500, 'x'));
  EXPECT_EQ(board.read()[0].activity, std::string(79, 'x'));
}

TEST(SideChannelTest, asks_and_is_answered) {
  SideChannel answering("run:", [] { return std::string("all is well"); });
  SideChannel asking("run:", [] { return std::string(); });
  SideChannel stranger("other:", [] { return std::string("lies"); });
  std::atomic<bool> stop{false};
  std::thread server([&] {
    while (!stop) answering.serve(std::chrono::milliseconds(10));
  });
  const std::string port = answering.address().substr(0, answering.address().find(' '));
  EXPECT_EQ(asking.ask(port + " 127.0.0.1", 5), "all is well");
  EXPECT_EQ(stranger.ask(port + " 127.0.0.1", 1), std::nullopt);
  stop = true;
  server.join();
  EXPECT_EQ(asking.ask(port + " 127.0.0.1", 1), std::nullopt);
}

}  // namespace
}  // namespace onebatch::comm
