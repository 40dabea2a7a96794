// All-reduce and broadcast among the ranks of one node through memory that they share. Knows no MPI: ranks may as well
// be threads.
#pragma once

#include "comm/communicator.hpp"

#include <atomic>
#include <cstdint>
#include <vector>

namespace onebatch::comm {

/// A buffer goes through the shared memory in stages of at most `chunk_bytes`. In a stage every rank lays down the
/// pieces that others are to sum, sums the piece that is its own, always in the order of the ranks, and takes the
/// others' sums. An element is summed by one rank, so all have the same bits, and those bits do not depend on how a
/// buffer is cut into stages or buckets.
///
/// Each rank has three slots, used in turn. Rank r lays down stage k + 3 only after it has seen everyone lay down stage
/// k + 2, and a rank lays down stage k + 2 only after it has taken all of stage k. So nothing is overwritten before it
/// is read, and a rank may lay down the next stage while others still sum this one.
class NodeReducer {
 public:
  /// Shared memory that a node of `size` ranks needs.
  static std::size_t bytes_needed(int size, std::size_t chunk_bytes);

  /// `memory` is the same on all ranks, aligned to 64 bytes, zero when the first rank is made, and outlives the
  /// reducer.
  NodeReducer(std::byte* memory, std::size_t chunk_bytes, int rank, int size);

  /// Memory of each rank, in their order, that all can read and write: `bytes` from each address. A buffer inside the
  /// own one, at the same offset on all ranks, is summed where it lies.
  void share_buffers(std::vector<std::byte*> addresses, std::size_t bytes);

  /// In place. Throws CommError where the ranks of the node do not all ask for the same operation. Collective.
  void all_reduce(void* buffer, std::size_t count, ScalarType type, ReduceOp op);
  void broadcast(void* buffer, std::size_t bytes, int root);

 private:
  struct alignas(64) RankState {
    std::atomic<std::uint64_t> arrived;  // stages laid down
    std::atomic<std::uint64_t> done;     // stages summed
    std::atomic<std::uint64_t> request[3];
    std::atomic<std::uint64_t> offset[3];  // of a buffer that is summed where it lies
  };

  struct Stage;
  struct Piece {
    std::size_t begin;
    std::size_t count;
  };

  [[nodiscard]] RankState& state(int rank) const;
  [[nodiscard]] std::byte* slot(int rank, std::uint64_t stage) const;
  [[nodiscard]] Piece piece_of(int rank, std::size_t count) const;
  [[nodiscard]] bool is_shared(const std::byte* data, std::size_t bytes) const;
  void all_reduce_shared(std::size_t offset, std::size_t count, ScalarType type, ReduceOp op);
  void all_reduce_small(std::byte* data, std::size_t count, ScalarType type, ReduceOp op);
  void lay_down(const Stage& stage);
  void sum_own(const Stage& stage);
  void take(const Stage& stage);
  void arrive(std::uint64_t stage, std::uint64_t request, std::uint64_t offset = 0);
  // Throws where another rank has come with another request or offset.
  void wait_for_all(std::uint64_t stage);

  std::byte* memory_;
  std::size_t chunk_bytes_;
  int rank_;
  int size_;
  std::uint64_t next_stage_ = 0;
  std::vector<const void*> inputs_;
  std::vector<std::byte*> shared_;
  std::vector<void*> buffers_;
  std::size_t shared_bytes_ = 0;
};

}  // namespace onebatch::comm
