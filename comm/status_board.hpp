// What each rank of a node is doing, in memory that they share: it can be read while all of them are stuck.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace onebatch::comm {

/// One rank's words about itself, as another rank reads them. Times are seconds before now.
struct RankReport {
  int rank = 0;
  std::uint64_t sequence = 0;  // collectives entered so far
  bool inside = false;         // of the last of them
  std::string operation;       // its name
  std::uint64_t bytes = 0;
  double operation_seconds = 0.0;  // since it was entered
  std::string activity;            // what else it said that it does
  double activity_seconds = 0.0;
  std::string process;  // "running", "stopped", "gone", as the operating system says

  /// One line of at most so many bytes, for the side channel; what is no report's line makes none. Control characters
  /// become '?'.
  static constexpr std::size_t k_most_line_bytes = 320;
  [[nodiscard]] std::string to_line() const;
  static std::vector<RankReport> from_lines(std::string_view lines);
};

class StatusBoard {
 public:
  static std::size_t bytes_needed(int size);
  /// `memory` is zero when the first rank is made, and outlives the board. `ranks` are the world ranks on this node,
  /// `own` is an index.
  StatusBoard(std::byte* memory, std::vector<int> ranks, int own);

  void enter(const char* operation, std::size_t bytes);
  void leave();
  void set_activity(std::string_view text);  // empty: nothing that anyone waits for
  /// That it goes on with what it has said last.
  void note_progress();
  /// True for the first rank of the node that asks: only one tells what happened.
  [[nodiscard]] bool claim_report();

  [[nodiscard]] std::vector<RankReport> read() const;
  [[nodiscard]] std::uint64_t own_sequence() const;
  /// When this rank entered the operation that it is in; 0 where it is in none.
  [[nodiscard]] std::int64_t own_entered_nanoseconds() const;
  /// When this rank last said what it does, that it goes on with it, or left an operation; 0 where it has said nothing.
  [[nodiscard]] std::int64_t own_progress_nanoseconds() const;
  [[nodiscard]] std::string own_activity() const;
  /// Of this node's ranks, those whose processes are stopped, with their numbers.
  struct Process {
    int rank = 0;
    long number = 0;
  };
  [[nodiscard]] std::vector<Process> stopped() const;
  /// Of the clock that all of this is told by.
  [[nodiscard]] static std::int64_t now_nanoseconds();

 private:
  // Words that one process writes and others read at any time: torn text is possible, a data race is not.
  class SharedText {
   public:
    void store(std::string_view text);
    [[nodiscard]] std::string load() const;

   private:
    std::array<std::atomic<std::uint64_t>, 10> words_;
  };

  struct alignas(64) RankState {
    std::atomic<std::int64_t> process;
    std::atomic<std::uint64_t> sequence;
    std::atomic<std::int64_t> entered_nanoseconds;  // 0: in no operation
    std::atomic<std::uint64_t> bytes;
    std::atomic<std::int64_t> activity_nanoseconds;
    std::atomic<std::uint64_t> claimed;  // of the first rank: who tells
    SharedText operation;
    SharedText activity;
  };

  [[nodiscard]] RankState& state(std::size_t index) const { return reinterpret_cast<RankState*>(memory_)[index]; }

  std::byte* memory_;
  std::vector<int> ranks_;
  std::size_t own_;
};

}  // namespace onebatch::comm
