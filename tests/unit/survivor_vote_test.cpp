// What the ranks that are left decide, against every combination of what four of them can say.
#include "comm/survivor_board.hpp"

#include "comm/aligned_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace onebatch::comm {
namespace {

Vote vote(int rank, std::int64_t step, std::uint64_t state = 7, bool can_write = true) {
  return {rank, step, {state, state}, can_write};
}

TEST(SurvivorVoteTest, lines_make_the_votes_that_they_were_made_of) {
  const std::vector<Vote> votes = {
      vote(0, 41), {3, Vote::k_not_whole, {}, false}, {12, 1, {~std::uint64_t{0}, 1}, true}};
  std::string lines = "2\t7\t0\t0\t0.1\t0.1\trunning\tall_reduce\tmicro-batches of step 4\n";
  for (const Vote& one : votes) {
    EXPECT_LE(one.to_line().size(), Vote::k_most_line_bytes);
    lines += one.to_line();
  }
  EXPECT_EQ(Vote::from_lines(lines), votes);
}

TEST(SurvivorVoteTest, lines_that_are_torn_or_of_others_make_none) {
  const std::string line = vote(1, 5).to_line();
  for (std::size_t length = 0; length + 2 < line.size(); ++length)
    EXPECT_TRUE(Vote::from_lines(line.substr(0, length)).empty()) << length;
  for (const char* other :
       {"vote\t-1\t5\t00000000000000070000000000000007\t1\n", "vote\t1\t-2\t00000000000000070000000000000007\t1\n",
        "vote\t1\t5\t0000000000000007000000000000000g\t1\n", "1\t5\t00000000000000070000000000000007\t1\n"})
    EXPECT_TRUE(Vote::from_lines(other).empty()) << other;
}

TEST(SurvivorVoteTest, nobody_left_nothing_decided) {
  EXPECT_FALSE(decide({}, Replicas::compared));
}

TEST(SurvivorVoteTest, a_lone_rank_saves_where_its_replica_is_the_runs) {
  EXPECT_EQ(decide({vote(0, 5)}, Replicas::never_compared)->why_not, "");
  EXPECT_EQ(decide({vote(2, 5)}, Replicas::compared)->why_not, "");
  EXPECT_NE(decide({vote(2, 5)}, Replicas::never_compared)->why_not, "");
  EXPECT_EQ(decide({vote(1, 5), vote(2, 5)}, Replicas::never_compared)->why_not, "");
}

constexpr int k_kinds = 10;

// Each of four ranks is lost, has no whole step, or has done step 5 or 6, in one of two states, with the folder in
// sight or not.
std::vector<Vote> votes_of(int number) {
  std::vector<Vote> votes;
  for (int rank = 0; rank < 4; ++rank, number /= k_kinds) {
    const int kind = number % k_kinds;
    if (kind == 1) votes.push_back(vote(rank, Vote::k_not_whole, 0, false));
    if (kind > 1)
      votes.push_back(vote(rank, 5 + kind % 2, 7U + static_cast<unsigned>(kind - 2) / 2 % 2, (kind - 2) / 4 == 0));
  }
  return votes;
}

struct Newest {
  std::int64_t step = Vote::k_not_whole;
  std::vector<int> have;
  std::vector<int> writers;
  bool same = true;
};

Newest newest_of(const std::vector<Vote>& votes) {
  Newest newest;
  for (const Vote& one : votes) newest.step = std::max(newest.step, one.step);
  for (const Vote& one : votes) {
    if (one.step != newest.step || newest.step == Vote::k_not_whole) continue;
    for (const Vote& other : votes)
      newest.same = newest.same && (other.step != newest.step || other.digest == one.digest);
    newest.have.push_back(one.rank);
    if (one.can_write) newest.writers.push_back(one.rank);
  }
  return newest;
}

TEST(SurvivorVoteTest, any_votes_save_the_newest_step_where_all_that_have_it_agree) {
  for (int number = 1; number < k_kinds * k_kinds * k_kinds * k_kinds; ++number) {
    auto votes = votes_of(number);
    const Newest newest = newest_of(votes);
    const int first = votes.front().rank;
    std::ranges::reverse(votes);
    const auto decision = decide(votes, Replicas::compared);
    ASSERT_TRUE(decision.has_value()) << number;
    const bool saves = !newest.have.empty() && newest.same && !newest.writers.empty();
    EXPECT_EQ(decision->why_not.empty(), saves) << number << ": " << decision->why_not;
    EXPECT_EQ(decision->agreeing, newest.have) << number;
    EXPECT_EQ(decision->speaker,
              !newest.writers.empty() ? newest.writers.front() : (newest.have.empty() ? first : newest.have.front()))
        << number;
    EXPECT_TRUE(!saves || decision->step == newest.step) << number;
  }
}

class SurvivorBoardTest : public testing::Test {
 protected:
  static constexpr std::size_t k_own_bytes = 100;
  SurvivorBoard board(int own) { return {memory_.data(), {4, 6, 7}, own, k_own_bytes}; }
  static void keep(SurvivorBoard& board, std::int64_t step, std::uint8_t value) {
    const auto bytes = board.begin(step);
    std::memset(bytes.data(), value, bytes.size());
    board.keep(step);
  }
  AlignedMemory memory_{SurvivorBoard::bytes_needed(3, k_own_bytes)};
};

TEST_F(SurvivorBoardTest, what_a_rank_keeps_is_there_for_the_others_for_three_steps) {
  SurvivorBoard first = board(0);
  SurvivorBoard last = board(2);
  for (std::int64_t step = 0; step < 9; ++step) {
    keep(first, step, static_cast<std::uint8_t>(step + 1));
    keep(last, step, static_cast<std::uint8_t>(100 + step));
    for (std::int64_t asked = 0; asked < 12; ++asked) {
      const auto bytes = last.own_of(4, asked);
      ASSERT_EQ(bytes.has_value(), asked <= step && asked > step - 3) << step << " " << asked;
      if (bytes) {
        EXPECT_EQ(bytes->size(), k_own_bytes);
        EXPECT_TRUE(
            std::ranges::all_of(*bytes, [&](std::byte one) { return static_cast<std::int64_t>(one) == asked + 1; }));
      }
    }
  }
  EXPECT_FALSE(first.own_of(6, 8));
  EXPECT_FALSE(first.own_of(5, 8));
}

TEST_F(SurvivorBoardTest, what_a_rank_that_was_lost_has_half_written_is_not_there) {
  SurvivorBoard first = board(0);
  keep(first, 3, 1);
  static_cast<void>(first.begin(6));
  EXPECT_FALSE(board(1).own_of(4, 6));
  EXPECT_FALSE(board(1).own_of(4, 3));
}

TEST_F(SurvivorBoardTest, votes_are_waited_for_from_ranks_that_run_or_have_promised) {
  SurvivorBoard first = board(0);
  SurvivorBoard second = board(1);
  SurvivorBoard third = board(2);
  const std::vector<std::string> running(3, "running");
  EXPECT_TRUE(first.expects_more(running));
  EXPECT_FALSE(first.expects_more({"gone", "stopped", "gone"}));
  second.promise();
  EXPECT_TRUE(first.expects_more({"gone", "gone", "gone"}));
  second.vote(vote(6, 9));
  EXPECT_FALSE(first.expects_more({"gone", "running", "stopped"}));
  first.abstain();
  first.promise();
  EXPECT_TRUE(first.abstains());
  EXPECT_FALSE(first.expects_more({"running", "running", "gone"}));
  third.vote(vote(7, 9));
  EXPECT_EQ(first.votes(), (std::vector<Vote>{vote(6, 9), vote(7, 9)}));
}

TEST_F(SurvivorBoardTest, the_first_call_and_the_first_claim_count) {
  SurvivorBoard first = board(0);
  SurvivorBoard second = board(1);
  EXPECT_FALSE(second.called());
  first.call_in_vain();
  second.call();
  EXPECT_TRUE(second.called() && first.called_in_vain());
  EXPECT_TRUE(second.claim());
  EXPECT_FALSE(first.claim());
}

}  // namespace
}  // namespace onebatch::comm
