#include "comm/cross_node_reducer.hpp"

#include "comm/mpi_communicator.hpp"
#include "comm/reduce_kernels.hpp"

#include <algorithm>
#include <cstring>

namespace onebatch::comm {
namespace {

constexpr std::size_t k_small_bytes = 8192;
constexpr std::size_t k_block_bytes = std::size_t{8} << 20;

}  // namespace

CrossNodeReducer::CrossNodeReducer(MPI_Comm members) : members_(members) {
  check_mpi(MPI_Comm_rank(members, &rank_), 0, "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(members, &size_), rank_, "MPI_Comm_size");
}

void CrossNodeReducer::all_reduce(void* buffer, std::size_t count, ScalarType type, ReduceOp op) {
  if (size_ == 1 || count == 0) return;
  auto* data = static_cast<std::byte*>(buffer);
  if (count * size_of(type) <= k_small_bytes) return all_reduce_small(data, count, type, op);
  const std::size_t block = k_block_bytes / size_of(type);
  for (std::size_t begin = 0; begin < count; begin += block)
    all_reduce_block(data + begin * size_of(type), std::min(block, count - begin), type, op);
}

void CrossNodeReducer::all_reduce_small(std::byte* data, std::size_t count, ScalarType type, ReduceOp op) {
  const std::size_t bytes = count * size_of(type);
  received_.resize(bytes * static_cast<std::size_t>(size_));
  check_mpi(MPI_Allgather(data, static_cast<int>(bytes), MPI_BYTE, received_.data(), static_cast<int>(bytes), MPI_BYTE,
                          members_),
            rank_, "MPI_Allgather");
  std::vector<const void*> inputs;
  for (int member = 0; member < size_; ++member)
    inputs.push_back(received_.data() + static_cast<std::size_t>(member) * bytes);
  reduce_in_order(data, inputs, count, type, op);
}

void CrossNodeReducer::all_reduce_block(std::byte* data, std::size_t count, ScalarType type, ReduceOp op) {
  const std::size_t element = size_of(type);
  const auto members = static_cast<std::size_t>(size_);
  const std::size_t each = (count + members - 1) / members;
  counts_.clear();
  offsets_.clear();
  for (std::size_t member = 0; member < members; ++member) {
    const std::size_t begin = std::min(count, each * member);
    offsets_.push_back(static_cast<int>(begin * element));
    counts_.push_back(static_cast<int>(std::min(each, count - begin) * element));
  }
  const auto own = static_cast<std::size_t>(rank_);
  const auto own_bytes = static_cast<std::size_t>(counts_[own]);
  own_counts_.assign(members, counts_[own]);
  own_offsets_.clear();
  for (std::size_t member = 0; member < members; ++member) own_offsets_.push_back(static_cast<int>(member * own_bytes));
  received_.resize(members * own_bytes);
  sum_.resize(own_bytes);
  check_mpi(MPI_Alltoallv(data, counts_.data(), offsets_.data(), MPI_BYTE, received_.data(), own_counts_.data(),
                          own_offsets_.data(), MPI_BYTE, members_),
            rank_, "MPI_Alltoallv");
  std::vector<const void*> inputs;
  for (std::size_t member = 0; member < members; ++member) inputs.push_back(received_.data() + member * own_bytes);
  reduce_in_order(sum_.data(), inputs, own_bytes / element, type, op);
  check_mpi(
      MPI_Allgatherv(sum_.data(), counts_[own], MPI_BYTE, data, counts_.data(), offsets_.data(), MPI_BYTE, members_),
      rank_, "MPI_Allgatherv");
}

}  // namespace onebatch::comm
