// All-reduce over MPI between nodes, with an order of its own: MPI's algorithm, and with it the sum's last bits,
// changes with the size.
#pragma once

#include "comm/communicator.hpp"

#include <mpi.h>

#include <vector>

namespace onebatch::comm {

/// Each member sums one piece, in the order of the members, and all gather the sums: 2 (m - 1) / m of the buffer leaves
/// each member, which is the least possible. Small buffers are gathered whole, and everyone sums.
class CrossNodeReducer {
 public:
  /// `members` stays the caller's.
  explicit CrossNodeReducer(MPI_Comm members);
  /// In place. Collective over the members.
  void all_reduce(void* buffer, std::size_t count, ScalarType type, ReduceOp op);

 private:
  void all_reduce_small(std::byte* data, std::size_t count, ScalarType type, ReduceOp op);
  void all_reduce_block(std::byte* data, std::size_t count, ScalarType type, ReduceOp op);

  MPI_Comm members_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<std::byte> received_;
  std::vector<std::byte> sum_;
  std::vector<int> counts_, offsets_, own_counts_, own_offsets_;
};

}  // namespace onebatch::comm
