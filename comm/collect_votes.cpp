#include "comm/collect_votes.hpp"

#include <algorithm>
#include <map>
#include <thread>

namespace onebatch::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Votes = std::map<int, Vote>;

constexpr auto k_look = std::chrono::milliseconds(5);

std::vector<std::string> process_states(const StatusBoard& board) {
  std::vector<std::string> states;
  for (const RankReport& report : board.read()) states.push_back(report.process);
  return states;
}

// A node is asked in each round, since its ranks vote one after another; one that is silent costs each a moment.
void ask_other_nodes(const LossCall& call, std::size_t round, Clock::time_point until, Votes& votes) {
  const int own_node = call.places.at(static_cast<std::size_t>(call.rank)).node;
  for (const int rank : ranks_to_ask(call.places, {own_node}, round)) {
    if (Clock::now() >= until) return;
    const RankPlace& place = call.places.at(static_cast<std::size_t>(rank));
    const auto neighbours = std::ranges::count(call.places, place.node, &RankPlace::node);
    const auto answer =
        call.channel->ask(place.side_channel, static_cast<std::size_t>(neighbours) *
                                                  (RankReport::k_most_line_bytes + Vote::k_most_line_bytes));
    if (!answer) continue;
    for (const Vote& vote : Vote::from_lines(*answer)) votes.emplace(vote.rank, vote);
  }
}

}  // namespace

std::vector<Vote> collect_votes(const SurvivorBoard& board, const LossCall& call, std::chrono::milliseconds patience) {
  const auto until = Clock::now() + patience;
  Votes votes;
  std::size_t round = 0;
  for (bool more = true; more && Clock::now() < until;) {
    // Asked for before the votes are read: what comes in between counts.
    more = board.expects_more(process_states(call.board));
    for (const Vote& vote : board.votes()) votes.emplace(vote.rank, vote);
    if (call.channel != nullptr && votes.size() < call.places.size()) ask_other_nodes(call, round++, until, votes);
    more = more || (call.channel != nullptr && votes.size() < call.places.size());
    if (more) std::this_thread::sleep_for(k_look);
  }
  while (call.channel != nullptr && Clock::now() < until) call.channel->serve(k_look);
  std::vector<Vote> all;
  for (const auto& [rank, vote] : votes) all.push_back(vote);
  return all;
}

}  // namespace onebatch::comm
