#include "comm/survivor_vote.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

namespace onebatch::comm {
namespace {

constexpr std::size_t k_digest_digits = 32;

std::optional<std::uint64_t> hexadecimal(std::string_view digits) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

// The decision of the ranks that have finished `step`, which are given in order.
Decision decide_among(const std::vector<Vote>& finished, Replicas replicas) {
  Decision decision;
  decision.step = finished.front().step;
  for (const Vote& vote : finished) decision.agreeing.push_back(vote.rank);
  const std::string step = fmt::format("step {}", decision.step);
  const auto writer = std::ranges::find_if(finished, &Vote::can_write);
  decision.speaker = writer == finished.end() ? finished.front().rank : writer->rank;
  const bool same =
      std::ranges::all_of(finished, [&](const Vote& vote) { return vote.digest == finished.front().digest; });
  if (!same)
    decision.why_not = "the states of rank " + ranks_text(decision.agreeing) + " after " + step + " differ";
  else if (writer == finished.end())
    decision.why_not =
        "rank " + ranks_text(decision.agreeing) + ", which finished " + step + ", cannot see the run's folder";
  else if (finished.size() == 1 && finished.front().rank != 0 && replicas == Replicas::never_compared)
    decision.why_not = fmt::format(
        "rank {} alone finished {}, and nothing has compared its weights with rank 0's "
        "(comm.check_replicas_every_steps)",
        finished.front().rank, step);
  return decision;
}

}  // namespace

std::string Vote::to_line() const {
  return fmt::format("vote\t{}\t{}\t{:016x}{:016x}\t{}\n", rank, step, digest[0], digest[1], can_write ? 1 : 0);
}

std::vector<Vote> Vote::from_lines(std::string_view lines) {
  std::vector<Vote> votes;
  std::istringstream in{std::string(lines)};
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string word;
    std::string digits;
    Vote vote;
    int can_write = 0;
    if (!(fields >> word >> vote.rank >> vote.step >> digits >> can_write) || word != "vote" ||
        digits.size() != k_digest_digits)
      continue;
    const auto high = hexadecimal(std::string_view(digits).substr(0, k_digest_digits / 2));
    const auto low = hexadecimal(std::string_view(digits).substr(k_digest_digits / 2));
    if (!high || !low || vote.rank < 0 || vote.step < k_not_whole) continue;
    vote.digest = {*high, *low};
    vote.can_write = can_write != 0;
    votes.push_back(vote);
  }
  return votes;
}

std::optional<Decision> decide(std::vector<Vote> votes, Replicas replicas) {
  if (votes.empty()) return std::nullopt;
  std::ranges::sort(votes, {}, &Vote::rank);
  const std::int64_t newest = std::ranges::max_element(votes, {}, &Vote::step)->step;
  const int lowest = votes.front().rank;
  if (newest == Vote::k_not_whole) return Decision{lowest, newest, {}, "no rank that is left has a whole step"};
  std::erase_if(votes, [&](const Vote& vote) { return vote.step != newest; });
  return decide_among(votes, replicas);
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : (i + 1 == ranks.size() ? " and " : ", "), ranks[i]);
  return text;
}

}  // namespace onebatch::comm
