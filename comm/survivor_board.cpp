#include "comm/survivor_board.hpp"

#include <algorithm>

namespace onebatch::comm {
namespace {

constexpr std::size_t k_line = 64;
constexpr std::uint64_t k_called = 1;
constexpr std::uint64_t k_in_vain = 2;

std::size_t in_lines(std::size_t bytes) {
  return (bytes + k_line - 1) / k_line * k_line;
}

}  // namespace

std::size_t SurvivorBoard::bytes_needed(int ranks, std::size_t own_bytes) {
  return static_cast<std::size_t>(ranks) * (sizeof(RankState) + k_slots * in_lines(own_bytes));
}

SurvivorBoard::SurvivorBoard(std::byte* memory, std::vector<int> ranks, int own, std::size_t own_bytes)
    : memory_(memory), ranks_(std::move(ranks)), own_(static_cast<std::size_t>(own)), own_bytes_(own_bytes) {}

std::byte* SurvivorBoard::slot(std::size_t index, std::int64_t step) const {
  std::byte* const slots = memory_ + ranks_.size() * sizeof(RankState);
  return slots + (index * k_slots + static_cast<std::size_t>(step % k_slots)) * in_lines(own_bytes_);
}

std::span<std::byte> SurvivorBoard::begin(std::int64_t step) {
  state(own_).kept[step % k_slots].store(0);
  return {slot(own_, step), own_bytes_};
}

void SurvivorBoard::keep(std::int64_t step) {
  state(own_).kept[step % k_slots].store(step + 1);
}

std::optional<std::span<const std::byte>> SurvivorBoard::own_of(int rank, std::int64_t step) const {
  const auto found = std::ranges::find(ranks_, rank);
  if (found == ranks_.end() || step < 0) return std::nullopt;
  const auto index = static_cast<std::size_t>(found - ranks_.begin());
  if (state(index).kept[step % k_slots].load() != step + 1) return std::nullopt;
  return std::span<const std::byte>(slot(index, step), own_bytes_);
}

void SurvivorBoard::call() {
  std::uint64_t nobody = 0;
  state(0).called.compare_exchange_strong(nobody, k_called);
}

void SurvivorBoard::call_in_vain() {
  std::uint64_t nobody = 0;
  state(0).called.compare_exchange_strong(nobody, k_in_vain);
}

bool SurvivorBoard::called() const {
  return state(0).called.load() != 0;
}

bool SurvivorBoard::called_in_vain() const {
  return state(0).called.load() == k_in_vain;
}

void SurvivorBoard::promise() {
  std::uint64_t before = silent;
  state(own_).state.compare_exchange_strong(before, promised);
}

void SurvivorBoard::abstain() {
  state(own_).state.store(abstained);
}

bool SurvivorBoard::abstains() const {
  return state(own_).state.load() == abstained;
}

void SurvivorBoard::vote(const Vote& vote) {
  RankState& own = state(own_);
  own.step.store(vote.step);
  own.digest[0].store(vote.digest[0]);
  own.digest[1].store(vote.digest[1]);
  own.can_write.store(vote.can_write ? 1 : 0);
  own.state.store(voted);  // last: it is what is looked at
}

std::vector<Vote> SurvivorBoard::votes() const {
  std::vector<Vote> votes;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const RankState& from = state(i);
    if (from.state.load() != voted) continue;
    votes.push_back(
        {ranks_[i], from.step.load(), {from.digest[0].load(), from.digest[1].load()}, from.can_write.load() != 0});
  }
  return votes;
}

bool SurvivorBoard::expects_more(const std::vector<std::string>& process_states) const {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const std::uint64_t said = state(i).state.load();
    if (said == promised || (said == silent && process_states.at(i) == "running")) return true;
  }
  return false;
}

bool SurvivorBoard::claim() {
  std::uint64_t nobody = 0;
  return state(0).claimed.compare_exchange_strong(nobody, 1);
}

}  // namespace onebatch::comm
