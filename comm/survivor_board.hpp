// What must outlive a rank, in memory that the ranks of a node share: what each alone has (local BatchNorm's running
// statistics, random generators), and the vote of those that are left.
#pragma once

#include "comm/survivor_vote.hpp"

#include <atomic>
#include <cstddef>
#include <span>

namespace onebatch::comm {

/// Each rank keeps its own of three steps. It writes that of step s before it enters the last sum of s, so whoever has
/// finished s finds everybody's; it comes to s + 2 only after all have finished s, so what a rank that is a step behind
/// needs is still there.
class SurvivorBoard {
 public:
  static std::size_t bytes_needed(int ranks, std::size_t own_bytes);
  /// `memory` is zero when the first rank is made, aligned to 64 bytes, and outlives the board. `ranks` are the world
  /// ranks on this node, `own` is an index.
  SurvivorBoard(std::byte* memory, std::vector<int> ranks, int own, std::size_t own_bytes);

  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }

  /// Where this rank lays down its own of a step; it counts from keep() on.
  [[nodiscard]] std::span<std::byte> begin(std::int64_t step);
  void keep(std::int64_t step);
  /// A rank's own of a step; none where it is not on this board or has not laid it down.
  [[nodiscard]] std::optional<std::span<const std::byte>> own_of(int rank, std::int64_t step) const;

  /// Asks every rank of this node for its vote.
  void call();
  /// The same after it has been waited for a rank as long as may be.
  void call_in_vain();
  [[nodiscard]] bool called() const;
  [[nodiscard]] bool called_in_vain() const;
  /// This rank is about to vote, whatever becomes of its process. Of no use once it has said abstain().
  void promise();
  /// This rank does not vote: it is the one that failed.
  void abstain();
  [[nodiscard]] bool abstains() const;
  void vote(const Vote& vote);
  [[nodiscard]] std::vector<Vote> votes() const;
  /// Whether a vote of this node may still come: of a rank that has promised one, or runs.
  [[nodiscard]] bool expects_more(const std::vector<std::string>& process_states) const;
  /// True for the first of this node that asks: the others are too late.
  [[nodiscard]] bool claim();

 private:
  static constexpr int k_slots = 3;
  enum State : std::uint64_t { silent, promised, abstained, voted };
  struct alignas(64) RankState {
    std::atomic<std::uint64_t> state;
    std::atomic<std::int64_t> step;
    std::atomic<std::uint64_t> digest[2];
    std::atomic<std::uint64_t> can_write;
    std::atomic<std::uint64_t> called;        // of the first rank
    std::atomic<std::uint64_t> claimed;       // of the first rank
    std::atomic<std::int64_t> kept[k_slots];  // which step each slot holds, counted from 1; 0: none
  };

  [[nodiscard]] RankState& state(std::size_t index) const { return reinterpret_cast<RankState*>(memory_)[index]; }
  [[nodiscard]] std::byte* slot(std::size_t index, std::int64_t step) const;

  std::byte* memory_;
  std::vector<int> ranks_;
  std::size_t own_;
  std::size_t own_bytes_;
};

}  // namespace onebatch::comm
