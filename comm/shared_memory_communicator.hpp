// Collectives on host memory for any number of nodes: shared memory within a node, MPI between nodes.
#pragma once

#include "comm/cross_node_reducer.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/node_reducer.hpp"
#include "comm/shared_window.hpp"

#include <optional>

namespace onebatch::comm {

/// All-reduce goes node, across nodes, node; gathers and broadcasts are MPI's. The bits of a sum depend on the ranks
/// and their nodes, and on nothing else: not on the size of the buffer, nor on how it is cut into buckets.
class SharedMemoryCommunicator final : public Communicator {
 public:
  /// Collective over the world's ranks. `node` holds this node's ranks and stays the caller's. Where any node has not
  /// enough room for its window, every rank is a node of its own.
  SharedMemoryCommunicator(std::unique_ptr<MpiCommunicator> world, MPI_Comm node, Watchdog& watchdog);
  ~SharedMemoryCommunicator() override = default;  // does not communicate: close() frees

  [[nodiscard]] int rank() const override { return world_->rank(); }
  [[nodiscard]] int size() const override { return world_->size(); }
  [[nodiscard]] std::string_view backend() const override { return "mpi"; }
  void all_reduce(void* buffer, std::size_t count, ScalarType type, ReduceOp op) override;
  void all_gather(const void* send, void* receive, std::size_t bytes_per_rank) override;
  void broadcast(void* buffer, std::size_t bytes, int root) override;
  void barrier() override;
  /// In a window of the node where there is room for all ranks' buffers, else ordinary memory, and why_not_in_place()
  /// says so.
  std::byte* allocate(std::size_t bytes) override;
  [[nodiscard]] Watchdog* watchdog() override { return &watchdog_; }
  void close() override;
  [[noreturn]] void abort(std::string_view reason, int exit_code) override;

  /// MPI's own collectives on the same ranks.
  [[nodiscard]] MpiCommunicator& mpi() { return *world_; }
  /// Why ranks of one node do not reduce through shared memory; empty where they do.
  [[nodiscard]] const std::string& why_not_shared() const { return why_not_shared_; }
  /// Why memory of allocate() is copied through a smaller window; empty where it is summed in place.
  [[nodiscard]] const std::string& why_not_in_place() const { return why_not_in_place_; }

 private:
  // 0: no room.
  [[nodiscard]] std::size_t agree_on_chunk();

  std::unique_ptr<MpiCommunicator> world_;
  Watchdog& watchdog_;
  int node_rank_ = 0;
  int node_size_ = 1;
  MPI_Comm node_ranks_ = MPI_COMM_NULL;
  std::unique_ptr<SharedWindow> window_;
  std::unique_ptr<SharedWindow> buffers_;
  std::optional<NodeReducer> node_;
  MPI_Comm leaders_ = MPI_COMM_NULL;
  std::optional<CrossNodeReducer> across_;
  std::string why_not_shared_;
  std::string why_not_in_place_;
};

}  // namespace onebatch::comm
