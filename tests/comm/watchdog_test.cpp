#include "comm/watchdog.hpp"

#include "comm/collect_votes.hpp"

#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <thread>

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
  const auto read =
      RankReport::from_lines(report(3, 11, true).to_line() + "no report at all\n" + report(4, 12, false).to_line());
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

// Of ranks 4 and 6, in one memory.
class TwoRanksTest : public ::testing::Test {
 protected:
  alignas(64) std::array<std::byte, 4096> memory_{};
  StatusBoard first_{memory_.data(), {4, 6}, 0};
  StatusBoard second_{memory_.data(), {4, 6}, 1};
};

TEST_F(TwoRanksTest, have_room) {
  EXPECT_LE(StatusBoard::bytes_needed(2), memory_.size());
}

TEST_F(TwoRanksTest, read_what_the_other_does) {
  first_.set_activity("opening data");
  const RankReport seen = second_.read().at(0);
  EXPECT_EQ(seen.rank, 4);
  EXPECT_EQ(seen.activity, "opening data");
  EXPECT_FALSE(seen.inside);
}

TEST_F(TwoRanksTest, read_which_operation_the_other_is_in) {
  second_.enter("broadcast", 64);
  const RankReport seen = first_.read().at(1);
  EXPECT_EQ(seen.rank, 6);
  EXPECT_TRUE(seen.inside);
  EXPECT_EQ(seen.operation, "broadcast");
  EXPECT_EQ(seen.bytes, 64U);
  EXPECT_EQ(seen.process, "running");
}

TEST_F(TwoRanksTest, know_when_they_entered_until_they_leave) {
  second_.enter("broadcast", 64);
  EXPECT_GT(second_.own_entered_nanoseconds(), 0);
  second_.leave();
  EXPECT_EQ(second_.own_entered_nanoseconds(), 0);
}

TEST_F(TwoRanksTest, report_once) {
  EXPECT_TRUE(first_.claim_report());
  EXPECT_FALSE(second_.claim_report());
}

TEST(StatusBoardTest, text_that_is_too_long_is_cut) {
  alignas(64) std::array<std::byte, 4096> memory{};
  StatusBoard board(memory.data(), {0}, 0);
  board.set_activity(std::string(500, 'x'));
  EXPECT_EQ(board.read()[0].activity, std::string(79, 'x'));
}

TEST(RankReportTest, control_characters_do_not_reach_a_terminal) {
  RankReport odd = report(1, 2, true);
  odd.activity = "\x1b[2Jstep 3\n0\t9";
  const auto read = RankReport::from_lines(odd.to_line());
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].activity, "?[2Jstep 3?0?9");
}

TEST(RankReportTest, a_line_is_no_longer_than_it_says) {
  RankReport long_one = report(123456, UINT64_MAX, true);
  long_one.bytes = UINT64_MAX;
  long_one.operation_seconds = long_one.activity_seconds = 1e-300;
  long_one.operation = long_one.activity = std::string(79, 'x');  // as a board holds
  EXPECT_LE(long_one.to_line().size(), RankReport::k_most_line_bytes);
}

TEST(PatienceTest, lasts_as_long_as_a_missing_rank_says_that_it_works) {
  RankReport busy = report(1, 8, false);
  busy.activity_seconds = 0.5;
  EXPECT_DOUBLE_EQ(seconds_of_patience({report(0, 9, true), busy}, 2, 9, 2.0), 1.5);
  busy.activity_seconds = 2.5;
  EXPECT_EQ(seconds_of_patience({report(0, 9, true), busy}, 2, 9, 2.0), 0.0);
  busy.activity.clear();
  busy.activity_seconds = 0.0;
  EXPECT_EQ(seconds_of_patience({report(0, 9, true), busy}, 2, 9, 2.0), 0.0) << "it has never said anything";
}

TEST(PatienceTest, ends_with_a_stopped_process_or_a_host_that_does_not_answer) {
  RankReport busy = report(1, 8, false);
  busy.activity_seconds = 0.5;
  EXPECT_EQ(seconds_of_patience({report(0, 9, true), busy}, 3, 9, 2.0), 0.0);
  RankReport stopped = report(2, 8, false);
  stopped.process = "stopped";
  EXPECT_EQ(seconds_of_patience({report(0, 9, true), busy, stopped}, 3, 9, 2.0), 0.0);
}

TEST(PatienceTest, is_none_where_all_have_entered) {
  EXPECT_EQ(seconds_of_patience({report(0, 9, true), report(1, 9, true)}, 2, 9, 2.0), 0.0);
}

TEST(PatienceTest, counts_from_when_the_last_has_entered) {
  RankReport waiting = report(0, 9, true);
  waiting.operation_seconds = 100.0;
  RankReport last = report(1, 9, true);
  last.operation_seconds = 0.1;
  EXPECT_DOUBLE_EQ(seconds_of_patience({waiting, last}, 2, 9, 10.0), 9.9);
  last.sequence = 8;  // which the one that waits has left at once
  EXPECT_DOUBLE_EQ(seconds_of_patience({waiting, last}, 2, 9, 10.0), 9.9);
}

TEST(RanksToAskTest, are_one_of_each_node_and_another_in_each_round) {
  using ::testing::ElementsAre;
  std::vector<RankPlace> places;
  for (const int node : {0, 1, 1, 1, 4, 4}) places.push_back({"", node, ""});
  EXPECT_THAT(ranks_to_ask(places, {0}, {}), ElementsAre(1, 4));
  EXPECT_THAT(ranks_to_ask(places, {0}, {{1, 1}}), ElementsAre(2, 4));
  EXPECT_THAT(ranks_to_ask(places, {0}, {{1, 2}, {4, 1}}), ElementsAre(3, 5));
  EXPECT_THAT(ranks_to_ask(places, {0, 4}, {{1, 3}, {4, 2}}), ElementsAre(1));
  EXPECT_THAT(ranks_to_ask(places, {0, 1, 4}, {}), ElementsAre());
}

constexpr std::int64_t k_second = 1'000'000'000;

TEST(RunningTimeTest, counts_from_the_entry) {
  RunningTime time;
  EXPECT_LT(time.update(0, 5 * k_second), 0.0);
  EXPECT_DOUBLE_EQ(time.update(5 * k_second + k_second / 2, 6 * k_second), 0.5);
  EXPECT_DOUBLE_EQ(time.update(5 * k_second + k_second / 2, 6 * k_second + k_second / 4), 0.75);
}

TEST(RunningTimeTest, a_suspended_process_does_not_count_it) {
  RunningTime time;
  time.update(k_second, k_second);
  EXPECT_DOUBLE_EQ(time.update(k_second, 1000 * k_second), 1.0);
}

TEST(RunningTimeTest, the_next_operation_begins_anew) {
  RunningTime time;
  time.update(k_second, k_second);
  time.update(k_second, 2 * k_second);
  EXPECT_DOUBLE_EQ(time.update(2 * k_second, 2 * k_second + k_second / 2), 0.5);
  EXPECT_LT(time.update(0, 3 * k_second), 0.0);
}

// Serves as long as it lives.
class Serving {
 public:
  explicit Serving(SideChannel& channel)
      : thread_([this, &channel] {
          while (!stop_) channel.serve(std::chrono::milliseconds(10));
        }) {}
  ~Serving() {
    stop_ = true;
    thread_.join();
  }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class SideChannelTest : public ::testing::Test {
 protected:
  static SideChannel channel(const SipKey& key, const std::string& says) {
    return SideChannel(key, {"127.0.0.1"}, [says] { return says; });
  }

  const SipKey key_ = SideChannel::make_key();
  SideChannel answering_ = channel(key_, "all is well");
  SideChannel asking_ = channel(key_, "");
};

TEST_F(SideChannelTest, asks_and_is_answered) {
  const Serving serving(answering_);
  EXPECT_EQ(asking_.ask(answering_.address(), 100), "all is well");
}

TEST_F(SideChannelTest, an_answer_has_no_more_than_was_asked_for) {
  const Serving serving(answering_);
  EXPECT_EQ(asking_.ask(answering_.address(), 3), "all");
}

TEST_F(SideChannelTest, another_run_is_not_answered) {
  const Serving serving(answering_);
  EXPECT_EQ(channel(SideChannel::make_key(), "lies").ask(answering_.address(), 100), std::nullopt);
}

TEST_F(SideChannelTest, without_a_key_nobody_is_answered) {
  EXPECT_EQ(channel(SipKey{}, "all is well").address(), "");
}

TEST_F(SideChannelTest, one_that_does_not_serve_does_not_answer) {
  EXPECT_EQ(asking_.ask(answering_.address(), 100), std::nullopt);
}

// Eight ranks of one node are silent; the one of another votes after it was asked for the first time.
TEST_F(SideChannelTest, a_silent_node_leaves_time_to_ask_another_again) {
  SideChannel voting(key_, {"127.0.0.1"}, [asked = 0]() mutable {
    return asked++ == 0 ? std::string() : Vote{.rank = 9, .step = 5}.to_line();
  });
  const Serving serving(voting);
  std::vector<RankPlace> places(9, {"beta", 1, answering_.address()});
  places[0] = {"alpha", 0, ""};
  places.push_back({"gamma", 9, voting.address()});
  const AlignedMemory memory(StatusBoard::bytes_needed(1));
  const AlignedMemory left(SurvivorBoard::bytes_needed(1, 0));
  const StatusBoard status(memory.data(), {0}, 0);
  SurvivorBoard board(left.data(), {0}, 0, 0);
  board.vote({.rank = 0, .step = 5});
  const auto begin = std::chrono::steady_clock::now();
  const auto votes = collect_votes(board, {Loss::called, 0, status, places, &asking_}, std::chrono::seconds(1));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_THAT(votes, ::testing::ElementsAre(::testing::Field(&Vote::rank, 0), ::testing::Field(&Vote::rank, 9)));
}

TEST_F(SideChannelTest, keys_of_two_runs_differ) {
  EXPECT_NE(SideChannel::make_key(), key_);
}

TEST_F(SideChannelTest, listens_where_it_is_told_to_alone) {
  const SideChannel two(key_, {"127.0.0.1", "127.0.0.2"}, [] { return std::string(); });
  EXPECT_THAT(two.address(), ::testing::MatchesRegex("127\\.0\\.0\\.1:[0-9]+ 127\\.0\\.0\\.2:[0-9]+"));
  EXPECT_EQ(SideChannel(key_, {}, [] { return std::string(); }).address(), "");
}

}  // namespace
}  // namespace onebatch::comm
