#include "comm/collect_votes.hpp"

#include <algorithm>
#include <map>
#include <set>
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

// This rank's, and those whose votes are there.
std::set<int> nodes_not_to_ask(const LossCall& call, const Votes& votes) {
  std::set<int> nodes;
  for (const RankPlace& place : call.places) nodes.insert(place.node);
  for (std::size_t rank = 0; rank < call.places.size(); ++rank) {
    if (!votes.contains(static_cast<int>(rank))) nodes.erase(call.places[rank].node);
  }
  nodes.insert(call.places.at(static_cast<std::size_t>(call.rank)).node);
  return nodes;
}

// A node is asked again and again, since its ranks vote one after another; one that is silent costs each a moment.
void ask_other_nodes(const LossCall& call, std::map<int, std::size_t>& silent, Clock::time_point until, Votes& votes) {
  for (const int rank : ranks_to_ask(call.places, nodes_not_to_ask(call, votes), silent)) {
    if (Clock::now() >= until) return;
    const RankPlace& place = call.places.at(static_cast<std::size_t>(rank));
    const auto neighbours = std::ranges::count(call.places, place.node, &RankPlace::node);
    const auto answer =
        call.channel->ask(place.side_channel, static_cast<std::size_t>(neighbours) *
                                                  (RankReport::k_most_line_bytes + Vote::k_most_line_bytes));
    if (!answer) {
      ++silent[place.node];
      continue;
    }
    for (const Vote& vote : Vote::from_lines(*answer)) votes.emplace(vote.rank, vote);
  }
}

}  // namespace

std::vector<Vote> collect_votes(const SurvivorBoard& board, const LossCall& call, std::chrono::milliseconds patience) {
  const auto until = Clock::now() + patience;
  Votes votes;
  std::map<int, std::size_t> silent;
  for (bool more = true; more && Clock::now() < until;) {
    // Asked for before the votes are read: what comes in between counts.
    more = board.expects_more(process_states(call.board));
    for (const Vote& vote : board.votes()) votes.emplace(vote.rank, vote);
    if (call.channel != nullptr && votes.size() < call.places.size()) ask_other_nodes(call, silent, until, votes);
    more = more || (call.channel != nullptr && votes.size() < call.places.size());
    if (more) std::this_thread::sleep_for(k_look);
  }
  while (call.channel != nullptr && Clock::now() < until) call.channel->serve(k_look);
  std::vector<Vote> all;
  for (const auto& [rank, vote] : votes) all.push_back(vote);
  return all;
}

}  // namespace onebatch::comm
