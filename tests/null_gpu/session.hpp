// What processes share: the memory that is taken on each device, and the boards on which the ranks of a communicator
// meet.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace null_gpu {

constexpr int k_most_devices = 16;
constexpr int k_most_ranks = 16;
constexpr int k_most_boards = 64;
constexpr int k_most_values = 64;  // of a collective whose sums are really made

/// Of one communicator. Collective n has ended once every rank has arrived at it.
struct Board {
  std::atomic<std::uint64_t> id;  // 0: free
  std::atomic<int> joined;
  std::atomic<std::uint64_t> arrived[k_most_ranks];
  double values[2][k_most_ranks][k_most_values];  // of collective n in n % 2
};

struct Session {
  std::atomic<std::int64_t> used[k_most_devices];  // bytes, by all processes
  Board boards[k_most_boards];
};

/// The shared one of the settings, or this process's own.
Session& session();
/// The board of this id, made by whoever asks first; null where there are too many.
Board* board(std::uint64_t id);

}  // namespace null_gpu
